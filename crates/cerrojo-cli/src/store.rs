//! Which store is meant, and opening it.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use cerrojo::{AnyLocker, Deadline, Error, ErrorKind, Options};

use crate::{args::Asking, exit::Failure, output::Output};

/// How long the end of the program waits for what still has to be given back.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// Opens the store that a URL names.
pub(crate) async fn connect(url: &str) -> Result<AnyLocker, Failure> {
    connect_with(url, Options::default()).await
}

async fn connect_with(url: &str, options: Options) -> Result<AnyLocker, Failure> {
    Ok(cerrojo::connect(&resolved(url)?, options).await?)
}

/// The URL with the default place in it, where it means that one.
pub(crate) fn resolved(url: &str) -> Result<String, Failure> {
    match url {
        "local:" => Ok(format!("local:{}", default_folder(|name| std::env::var_os(name))?)),
        url => Ok(url.to_owned()),
    }
}

/// Opens a store for a command that acquires: with `--fenced` it has to give tokens.
pub(crate) async fn connect_to_ask(url: &str, asking: &Asking) -> Result<AnyLocker, Failure> {
    connect_for(url, asking, Some(std::process::id())).await
}

/// The same, with the process that others are shown as the holder.
pub(crate) async fn connect_for(
    url: &str,
    asking: &Asking,
    pid: Option<u32>,
) -> Result<AnyLocker, Failure> {
    let mut options = Options::default();
    options.identity.pid = pid;
    let store = connect_with(url, options).await?;
    if asking.fenced && !store.is_fenced() {
        let message = "the locks of this store carry no fencing token, and --fenced asks for one";
        return Err(Error::new(ErrorKind::Invalid, message).into());
    }
    Ok(store)
}

/// Waits a while for what still has to be given back, before the program ends.
pub(crate) async fn close(store: &AnyLocker, output: Output) {
    if let Err(error) = store.close(Deadline::after(CLOSE_LIMIT)).await {
        output.warning(&error);
    }
}

/// The place for state by the XDG convention. The library reads no environment, so it is found here.
fn default_folder(variable: impl Fn(&str) -> Option<OsString>) -> Result<String, Failure> {
    let state = || absolute(variable("XDG_STATE_HOME")?);
    let home = || Some(absolute(variable("HOME")?)?.join(".local/state"));
    let folder = state().or_else(home).map(|state| state.join("cerrojo"));
    let folder = folder.as_deref().and_then(Path::to_str);
    folder.map(str::to_owned).ok_or_else(|| {
        Failure::usage(
            "local: has no default place here, since neither XDG_STATE_HOME nor HOME is an absolute path: name a folder, as in \
             local:/var/lib/app/locks",
        )
    })
}

/// By the convention a relative path is as if it were not set.
fn absolute(path: OsString) -> Option<PathBuf> {
    Some(PathBuf::from(path)).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(state: Option<&str>, home: Option<&str>) -> Option<String> {
        let variable = |name: &str| match name {
            "XDG_STATE_HOME" => state.map(OsString::from),
            "HOME" => home.map(OsString::from),
            _ => None,
        };
        default_folder(variable).ok()
    }

    #[test]
    fn the_default_place_is_by_the_xdg_convention() {
        let cases = [
            (Some("/s"), Some("/h"), Some("/s/cerrojo")),
            (Some("/s"), None, Some("/s/cerrojo")),
            (None, Some("/h"), Some("/h/.local/state/cerrojo")),
            (Some(""), Some("/h"), Some("/h/.local/state/cerrojo")),
            (Some("relative"), Some("/h"), Some("/h/.local/state/cerrojo")),
            (None, Some("relative"), None),
            (None, None, None),
        ];
        for (state, home, place) in cases {
            assert_eq!(folder(state, home).as_deref(), place, "{state:?} {home:?}");
        }
    }
}
