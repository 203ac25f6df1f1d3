//! The rules of the house. Each takes sources and answers what breaks it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crate::{
    paths::{Named, named},
    scan::{Kind, Token, reads},
    tree::{Tree, module_of},
};

/// A place that breaks a rule.
#[derive(Debug)]
pub struct Violation {
    file: String,
    line: usize,
    why: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.why)
    }
}

/// The files without async, I/O and clock; `pure` stands for all of them below.
const PURE: &[&str] = &["name", "owner", "token", "validity", "error", "holder", "claim"];

/// What each module may import from the crate: modules, or single items as stated exceptions.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("name", &["pure"]),
    ("owner", &["pure", "rng::id"]),
    ("token", &["pure"]),
    ("validity", &["pure", "clock::Instant"]),
    ("error", &["pure"]),
    ("holder", &["pure"]),
    ("claim", &["pure"]),
    ("sql", &["pure"]),
    ("clock", &[]),
    ("rng", &[]),
    ("fence", &["pure", "clock", "rng", "sql"]),
    ("queue", &["pure"]),
    ("watched", &["pure", "clock"]),
    ("options", &["pure", "watched"]),
    ("spi", &["pure", "clock", "waiter"]),
    ("waiter", &["pure", "clock", "rng", "spi"]),
    ("line", &["clock", "rng"]),
    // A guarded transaction says no as a fence does.
    ("backend", &["pure", "clock", "rng", "spi", "line", "sql", "fence::Stale"]),
    ("erased", &["pure", "clock", "spi"]),
    ("status", &["pure", "clock"]),
    ("guard", &["pure", "clock", "status"]),
    ("keeper", &["pure", "clock", "rng", "spi", "status", "guard", "queue", "watched", "options"]),
    (
        "locker",
        &["pure", "clock", "spi", "status", "guard", "queue", "options", "watched", "keeper"],
    ),
    ("connect", &["pure", "clock", "spi", "guard", "erased", "locker", "options", "backend"]),
];

/// Modules that [`MAY_IMPORT`] says nothing about: the root, which re-exports, and the suite, which has
/// [a rule of its own](suite_uses_the_public_api).
const WITHOUT_ROW: &[&str] = &["", "conformance"];

/// Who may import whom.
pub fn imports(tree: &Tree) -> Vec<Violation> {
    let origins = origins(tree);
    in_each_path(tree, |file, path| {
        let from = module_of(file);
        let own = from.first().map(String::as_str).unwrap_or_default();
        let target = target(tree, &origins, path.inside()?);
        if WITHOUT_ROW.contains(&own) || is_own(&from, &target) || allowed(own, &target) {
            return None;
        }
        Some(format!("`{own}` may not import `{}`", target.join("::")))
    })
}

/// Where an item of the root comes from: `Guard` from `guard::Guard`.
fn origins(tree: &Tree) -> BTreeMap<String, Vec<String>> {
    let root = tree.module(&[]).unwrap_or_default();
    let exported = named(root, &[]).into_iter().filter(|path| path.public);
    exported.map(|path| (path.alias, strip_crate(path.words))).collect()
}

fn strip_crate(mut words: Vec<String>) -> Vec<String> {
    words.retain(|word| word != "crate" && word != "self");
    words
}

/// The path from the module in which the thing is written.
fn target(tree: &Tree, origins: &BTreeMap<String, Vec<String>>, path: &[String]) -> Vec<String> {
    let Some((first, rest)) = path.split_first() else {
        return Vec::new();
    };
    match origins.get(first) {
        Some(origin) if tree.module(std::slice::from_ref(first)).is_none() => {
            [origin.as_slice(), rest].concat()
        }
        _ => path.to_vec(),
    }
}

/// Whether a module imports from itself. A backend is itself; the other backends are others.
/// One exception: a node of `redlock` is a server of `redis`.
fn is_own(from: &[String], target: &[String]) -> bool {
    let starts = |path: &[String], with: [&str; 2]| path.iter().take(2).eq(with.iter());
    if starts(from, ["backend", "redlock"]) && starts(target, ["backend", "redis"]) {
        return true;
    }
    let depth = if from.first().is_some_and(|first| first == "backend") { 2 } else { 1 };
    let unit = &from[..from.len().min(depth)];
    !unit.is_empty() && target.starts_with(unit)
}

fn allowed(own: &str, target: &[String]) -> bool {
    let row = MAY_IMPORT.iter().find(|(module, _)| *module == own).map(|(_, row)| *row);
    let modules = row.unwrap_or_default().iter().flat_map(|&entry| match entry {
        "pure" => PURE.to_vec(),
        entry => vec![entry],
    });
    let written: Vec<_> = modules.map(|entry| entry.split("::").collect::<Vec<_>>()).collect();
    written.iter().any(|entry| target.len() >= entry.len() && target[..entry.len()] == entry[..])
}

/// Every module has a row in the table, and every row has a module.
pub fn table_is_whole(tree: &Tree) -> Vec<Violation> {
    let mut found = in_each_file(tree, |file, _| {
        let top = module_of(file).into_iter().next().unwrap_or_default();
        let known =
            WITHOUT_ROW.contains(&top.as_str()) || MAY_IMPORT.iter().any(|row| row.0 == top);
        let why = format!("`{top}` has no row in MAY_IMPORT: say what it may import");
        if known { Vec::new() } else { vec![(1, why)] }
    });
    let rows = MAY_IMPORT.iter().filter(|row| tree.module(&[row.0.to_owned()]).is_none());
    found.extend(rows.map(|row| violation("lib.rs", 1, format!("no module `{}` any more", row.0))));
    found
}

/// The suite names nothing that a stranger's suite could not name, and no backend.
pub fn suite_uses_the_public_api(tree: &Tree) -> Vec<Violation> {
    in_each_path(tree, |file, path| {
        let inside = path.inside().filter(|_| file.starts_with("conformance"))?;
        let first = inside.first().map(String::as_str).unwrap_or_default();
        if first == "backend" {
            return Some(format!("the suite names a backend: `{}`", path.text()));
        }
        let open = first == "conformance" || is_public(tree, inside);
        (!open).then(|| format!("the suite uses what is not public: `{}`", path.text()))
    })
}

/// Whether a path, from the root on, leads through public modules to a public item.
fn is_public(tree: &Tree, path: &[String]) -> bool {
    let mut module = Vec::new();
    for word in path {
        let Some(tokens) = tree.module(&module) else {
            return true;
        };
        if word == "*" {
            return !module.is_empty();
        }
        if !public_names(tokens, &module).contains(word) {
            return false;
        }
        module.push(word.clone());
    }
    !module.is_empty()
}

/// What a module exports: its own public items, and what it re-exports.
fn public_names(tokens: &[Token], module: &[String]) -> Vec<String> {
    let mut names: Vec<_> = named(tokens, module)
        .into_iter()
        .filter(|path| path.public)
        .map(|path| path.alias)
        .collect();
    let mut depth = 0_u32;
    for (at, token) in tokens.iter().enumerate() {
        match token.text.as_str() {
            "{" if token.kind == Kind::Mark => depth += 1,
            "}" if token.kind == Kind::Mark => depth -= 1,
            "pub" if depth == 0 => names.extend(item_name(&tokens[at + 1..])),
            _ => {}
        }
    }
    names
}

/// The name of the item that stands after `pub`.
fn item_name(tokens: &[Token]) -> Option<String> {
    const BEFORE_A_NAME: &[&str] =
        &["async", "const", "enum", "fn", "mod", "static", "struct", "trait", "type", "union"];
    let words = tokens.iter().skip_while(|token| BEFORE_A_NAME.contains(&token.text.as_str()));
    let name = words.take(1).find(|token| token.kind == Kind::Word && !token.is("use"))?;
    Some(name.text.clone())
}

/// Time is read in clock.rs and randomness in rng.rs, nowhere else; and nothing else blocks its thread for a time,
/// but the suite, which has threads without a runtime and executors to block.
pub fn time_and_randomness_have_one_reader(tree: &Tree) -> Vec<Violation> {
    const TIME: &[&str] = &[
        "std::time::Instant",
        "std::time::SystemTime",
        "std::time::UNIX_EPOCH",
        "SystemTime::now",
        "tokio::time",
        "rustix::time",
        "clock_gettime",
    ];
    const BLOCKING: &[&str] = &["thread::sleep", "thread::park_timeout"];
    const RANDOMNESS: &[&str] = &["rand", "getrandom", "rustix::rand", "fastrand", "uuid"];
    in_each_path(tree, |file, path| {
        let holds = |reads: &[&str]| reads.iter().any(|read| path.holds(read));
        let time = file != "clock.rs" && (holds(TIME) || !is_suite(file) && holds(BLOCKING));
        let randomness = file != "rng.rs" && RANDOMNESS.iter().any(|read| path.begins(read));
        let why = || format!("`{}`: only clock.rs and rng.rs read these", path.text());
        (time || randomness).then(why)
    })
}

/// No script of the local store asks SQLite for time or randomness.
pub fn local_scripts_read_no_clock(tree: &Tree) -> Vec<Violation> {
    const READS: &[&str] = &[
        "current_time",
        "datetime(",
        "julianday(",
        "strftime(",
        "unixepoch(",
        "random(",
        "randomblob(",
    ];
    let asks = |text: &str| {
        let text = text.to_lowercase();
        READS
            .iter()
            .find(|read| text.contains(**read))
            .map(|read| format!("a script asks for `{read}`"))
    };
    let mut found = in_each_file(tree, |file, tokens| {
        let texts = tokens.iter().filter(|token| token.kind == Kind::Text && is_local(file));
        texts.filter_map(|token| asks(&token.text).map(|why| (token.line, why))).collect()
    });
    let scripts = tree.scripts().filter(|(file, _)| is_local(file));
    found.extend(scripts.filter_map(|(file, text)| asks(text).map(|why| violation(file, 1, why))));
    found
}

fn is_local(file: &str) -> bool {
    file.starts_with("backend/local")
}

/// The library reads no environment variable; the suite may, since a person started it.
///
/// One more exception is stated: the default place of the local store is below the user's home.
pub fn no_environment_is_read(tree: &Tree) -> Vec<Violation> {
    const READS: &[&str] = &["var", "var_os", "vars", "vars_os", "home_dir", "temp_dir"];
    const EXCEPTION: (&str, &str) = ("backend/local/config.rs", "std::env::home_dir");
    in_each_path(tree, |file, path| {
        let reads = READS.iter().any(|read| path.holds(&format!("env::{read}")));
        let excepted = (file, path.text().as_str()) == EXCEPTION;
        let why = || format!("`{}` reads the environment: let the caller pass it", path.text());
        (reads && !excepted && !is_suite(file)).then(why)
    })
}

/// The library prints nothing; the suite may, since a person started it.
pub fn nothing_is_printed(tree: &Tree) -> Vec<Violation> {
    const MACROS: &[&str] = &["print", "println", "eprint", "eprintln", "dbg"];
    let macros = in_each_file(tree, |file, tokens| {
        let calls = tokens.iter().enumerate().filter(|(at, token)| {
            !is_suite(file)
                && MACROS.iter().any(|name| token.is(name))
                && reads(tokens, at + 1, &["!"])
        });
        calls.map(|(_, token)| (token.line, format!("`{}!` prints", token.text))).collect()
    });
    let streams = in_each_path(tree, |file, path| {
        let prints = !is_suite(file) && (path.holds("io::stdout") || path.holds("io::stderr"));
        prints.then(|| format!("`{}` prints", path.text()))
    });
    macros.into_iter().chain(streams).collect()
}

fn is_suite(file: &str) -> bool {
    file.starts_with("conformance")
}

/// Libraries that talk to a store.
const DRIVERS: &[&str] = &[
    "bb8",
    "deadpool",
    "deadpool_postgres",
    "deadpool_redis",
    "diesel",
    "etcd_client",
    "fred",
    "libsqlite3_sys",
    "postgres",
    "redb",
    "redis",
    "rusqlite",
    "sled",
    "sqlx",
    "tokio_postgres",
    "tonic",
    "zookeeper",
    "zookeeper_async",
    "zookeeper_client",
];

/// A program reaches stores by cerrojo alone: it names no driver.
pub fn no_driver_is_named(tree: &Tree) -> Vec<Violation> {
    in_each_path(tree, |_, path| {
        let driver = DRIVERS.iter().any(|driver| path.begins(driver));
        driver.then(|| format!("`{}` is a driver's", path.text()))
    })
}

/// Functions whose very sense is that the user hands in a client of their own.
const ON_THE_USERS_CLIENT: &[&str] =
    &["from_client", "transaction", "enter", "init", "admit", "adopt"];

/// No driver's type stands in a public signature, except where the user hands in a client of their own.
pub fn no_driver_is_public(tree: &Tree) -> Vec<Violation> {
    in_each_file(tree, |file, tokens| {
        let paths = named(tokens, &module_of(file));
        let drivers = paths.iter().filter(|path| DRIVERS.iter().any(|driver| path.begins(driver)));
        let exported = drivers.clone().filter(|path| path.public);
        let exported = exported.map(|path| (path.line, format!("`{}` is exported", path.text())));
        let imported: Vec<_> =
            drivers.map(|path| path.alias.as_str()).chain(DRIVERS.iter().copied()).collect();
        let is_excepted = |words: &[Token]| {
            let at = if reads(words, 1, &["async"]) { 2 } else { 1 };
            ON_THE_USERS_CLIENT.iter().any(|name| reads(words, at, &["fn", name]))
        };
        let signatures = signatures(tokens).filter(|words| !is_excepted(words));
        let shown = signatures.filter_map(|words| {
            let word = words.iter().find(|token| {
                token.kind == Kind::Word && imported.contains(&token.text.as_str())
            })?;
            Some((word.line, format!("`{}` of a driver is in a public signature", word.text)))
        });
        exported.chain(shown).collect()
    })
}

/// What stands from each `pub` to the body, the end or the comma of its item; imports and modules apart.
fn signatures(tokens: &[Token]) -> impl Iterator<Item = &[Token]> {
    let starts = tokens.iter().enumerate().filter(|(at, token)| {
        // A backend's module may have its driver's name.
        let hidden = ["(", "use", "mod"].iter().any(|next| reads(tokens, at + 1, &[next]));
        token.is("pub") && !hidden
    });
    starts.map(|(at, _)| {
        let length = signature_length(&tokens[at..]);
        &tokens[at..at + length]
    })
}

fn signature_length(tokens: &[Token]) -> usize {
    let of_struct = reads(tokens, 1, &["struct"]);
    let mut depth = 0_i32;
    let end = tokens.iter().position(|token| {
        let ends = ["{", ";", ",", "}"].iter().any(|mark| token.is(mark)) && depth <= 0;
        // The fields of a tuple struct are private unless they say `pub` themselves.
        let fields = of_struct && token.is("(");
        depth += i32::from(token.is("(")) - i32::from(token.is(")"));
        ends || fields || depth < 0
    });
    end.unwrap_or(tokens.len())
}

/// The dependencies in a Cargo.toml, of every kind and for every platform.
pub fn dependencies(manifest: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut inside = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let mut parts = section
                .trim_end_matches(']')
                .split('.')
                .skip_while(|part| !part.ends_with("dependencies"));
            inside = parts.next().is_some();
            found.extend(parts.next().map(str::to_owned));
            inside &= parts.next().is_none();
        } else if inside && !line.starts_with('#') {
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            found.extend((!name.is_empty()).then(|| name.trim_matches('"').to_owned()));
        }
    }
    found
}

/// A program's Cargo.toml names no driver.
pub fn no_driver_is_a_dependency(manifest: &str) -> Vec<Violation> {
    let drivers = dependencies(manifest)
        .into_iter()
        .filter(|name| DRIVERS.contains(&name.replace('-', "_").as_str()));
    drivers.map(|name| violation("Cargo.toml", 1, format!("`{name}` is a driver"))).collect()
}

/// The testbed knows nothing of cerrojo.
pub fn testbed_stands_alone(manifest: &str) -> Vec<Violation> {
    let own = dependencies(manifest).into_iter().filter(|name| name.starts_with("cerrojo"));
    own.map(|name| violation("Cargo.toml", 1, format!("the testbed depends on `{name}`"))).collect()
}

/// Every dependency of the workspace has its line of reason, and every line its dependency.
pub fn dependencies_have_reasons(manifest: &str, reasons: &str) -> Vec<Violation> {
    let rows = reasons.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let rows: BTreeSet<_> = rows.map(str::to_owned).collect();
    let used = dependencies(manifest).into_iter().filter(|name| !name.starts_with("cerrojo"));
    let odd: Vec<_> = rows.symmetric_difference(&used.collect()).cloned().collect();
    let why = |name| format!("`{name}` is either not used or has no reason");
    odd.iter().map(|name| violation("docs/decisions/0001-dependencies.md", 1, why(name))).collect()
}

fn in_each_file(
    tree: &Tree,
    broken: impl Fn(&str, &[Token]) -> Vec<(usize, String)>,
) -> Vec<Violation> {
    let found = tree.built().flat_map(|(file, tokens)| {
        let places = broken(file, tokens).into_iter();
        places.map(move |(line, why)| violation(file, line, why)).collect::<Vec<_>>()
    });
    found.collect()
}

fn in_each_path(tree: &Tree, broken: impl Fn(&str, &Named) -> Option<String>) -> Vec<Violation> {
    in_each_file(tree, |file, tokens| {
        let paths = named(tokens, &module_of(file));
        paths.iter().filter_map(|path| broken(file, path).map(|why| (path.line, why))).collect()
    })
}

fn violation(file: &str, line: usize, why: String) -> Violation {
    Violation { file: file.to_owned(), line, why }
}
