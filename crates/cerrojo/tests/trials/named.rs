//! Trials that are called what their functions are called.

/// What `make` makes of each function and its name.
macro_rules! named {
    (|$text:ident, $proof:ident| $make:expr; $($module:ident :: $name:ident,)*) => {
        vec![$({
            let ($text, $proof) = (stringify!($name), $module::$name);
            $make
        }),*]
    };
}
