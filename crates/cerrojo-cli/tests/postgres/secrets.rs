//! The password in a URL that cannot be used.

use crate::{
    served::{Trials, traced},
    servers::Servers,
    world::World,
};

pub(crate) const TRIALS: Trials =
    &[("a_url_that_is_wrong_is_not_repeated", a_url_that_is_wrong_is_not_repeated)];

fn a_url_that_is_wrong_is_not_repeated(_: &Servers) {
    for store in [
        "postgres://ann:hush-hush@h/app?pool=3",
        "postgres://ann:hush-hush@h:port/app",
        "postgres:host=h password='hush-hush",
        "postgres:host=h password=hush-hush sslmode=perhaps",
        "postgres:hush-hush",
    ] {
        for arguments in [&["ls"][..], &["store", "init"], &["store", "init", "--print"]] {
            let run = traced(&World::on(store.to_owned()), arguments);
            run.assert_code(69);
            assert!(!run.stderr.contains("hush-hush"), "{run:?}");
        }
    }
}
