//! The sources of a crate, as text.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::scan::{self, Token};

/// Source files by their path below `src`, such as `backend/memory.rs`.
#[derive(Clone)]
pub struct Tree(BTreeMap<String, Arc<Source>>);

struct Source {
    text: String,
    /// The code without comments and tests; nothing for a script.
    code: Vec<Token>,
}

impl Tree {
    /// The library's own sources.
    pub fn library() -> Self {
        Self::of_crate("cerrojo")
    }

    /// The sources of a crate of this workspace.
    pub fn of_crate(name: &str) -> Self {
        let src = crates().join(name).join("src");
        let mut files = BTreeMap::new();
        collect(&src, &src, &mut files);
        Self(files)
    }

    /// The same sources with `text` at the end of one file, which need not exist.
    pub fn with(mut self, file: &str, text: &str) -> Self {
        let before = self.0.get(file).map(|source| source.text.as_str()).unwrap_or_default();
        let source = Source::read(file, format!("{before}\n{text}"));
        self.0.insert(file.to_owned(), source);
        self
    }

    /// Every file that ends up in a build, with its code: no comments, no tests.
    pub fn built(&self) -> impl Iterator<Item = (&str, &[Token])> {
        let rust = self.0.iter().filter(|(file, _)| is_rust(file) && !is_test(file));
        rust.map(|(file, source)| (file.as_str(), source.code.as_slice()))
    }

    /// Every file that is not Rust: scripts that are embedded at build.
    pub fn scripts(&self) -> impl Iterator<Item = (&str, &str)> {
        let scripts = self.0.iter().filter(|(file, _)| !is_rust(file));
        scripts.map(|(file, source)| (file.as_str(), source.text.as_str()))
    }

    /// The code of the module with this path, if it has a file of its own.
    pub fn module(&self, path: &[String]) -> Option<&[Token]> {
        let stem = if path.is_empty() { "lib".to_owned() } else { path.join("/") };
        let files = [format!("{stem}.rs"), format!("{stem}/mod.rs")];
        files.iter().find_map(|file| self.0.get(file)).map(|source| source.code.as_slice())
    }
}

impl Source {
    fn read(file: &str, text: String) -> Arc<Self> {
        let code = if is_rust(file) { scan::built(&text) } else { Vec::new() };
        Arc::new(Self { text, code })
    }
}

/// The folder of all crates.
fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The text of a crate's Cargo.toml.
pub fn manifest(name: &str) -> String {
    fs::read_to_string(crates().join(name).join("Cargo.toml")).unwrap()
}

/// The text of a file at the root of the workspace.
pub fn workspace_file(path: &str) -> String {
    fs::read_to_string(crates().join("..").join(path)).unwrap()
}

/// The path of the module that a file holds; empty for the crate's root.
pub fn module_of(file: &str) -> Vec<String> {
    let stem = file.trim_end_matches(".rs").trim_end_matches("/mod");
    let parts = stem.split('/').map(str::to_owned);
    parts.filter(|part| part != "lib" && part != "main").collect()
}

fn is_rust(file: &str) -> bool {
    file.ends_with(".rs")
}

fn is_test(file: &str) -> bool {
    module_of(file).iter().any(|part| part == "tests")
}

fn collect(root: &Path, folder: &Path, files: &mut BTreeMap<String, Arc<Source>>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(root, &path, files);
        } else {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            let source = Source::read(&name, fs::read_to_string(&path).unwrap());
            files.insert(name, source);
        }
    }
}
