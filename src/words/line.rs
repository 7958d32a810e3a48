//! The macros that push a line.

/// Pushes a line: fields and message as `tracing` writes them. The values are evaluated at once, and only if the log
/// may take it.
macro_rules! line {
    ($level:ident: $($rest:tt)+) => {
        $crate::words::line::line!(@fields $level [] $($rest)+)
    };
    // `%shown, ?debugged`
    (@fields $level:ident [$($field:tt)*] % $name:ident, $($rest:tt)+) => {
        $crate::words::line::line!(@fields $level [$($field)* { $name (%$name) ($name.to_string()) }] $($rest)+)
    };
    (@fields $level:ident [$($field:tt)*] ? $name:ident, $($rest:tt)+) => {
        $crate::words::line::line!(@fields $level [$($field)* { $name (%$name) (format!("{:?}", $name)) }] $($rest)+)
    };
    // `name = %shown, name = ?debugged, name = value`
    (@fields $level:ident [$($field:tt)*] $name:ident = % $value:expr, $($rest:tt)+) => {
        $crate::words::line::line!(@fields $level [$($field)* { $name (%$name) ($value.to_string()) }] $($rest)+)
    };
    (@fields $level:ident [$($field:tt)*] $name:ident = ? $value:expr, $($rest:tt)+) => {
        $crate::words::line::line!(@fields $level [$($field)* { $name (%$name) (format!("{:?}", $value)) }] $($rest)+)
    };
    (@fields $level:ident [$($field:tt)*] $name:ident = $value:expr, $($rest:tt)+) => {
        $crate::words::line::line!(@fields $level
            [$($field)* { $name ($name) ($crate::words::parts::owned(&$value)) }] $($rest)+)
    };
    // `value`
    (@fields $level:ident [$($field:tt)*] $name:ident, $($rest:tt)+) => {
        $crate::words::line::line!(@fields $level
            [$($field)* { $name ($name) ($crate::words::parts::owned(&$name)) }] $($rest)+)
    };
    (@fields $level:ident [$({ $name:ident ($($shown:tt)+) ($($value:tt)+) })*] $($message:tt)+) => {
        if $crate::words::parts::is_heard($crate::words::parts::Level::$level) {
            #[allow(unused_parens, reason = "a line may have one field")]
            let values = ($($($value)+),*);
            let message = format!($($message)+);
            $crate::words::parts::push(move |late: Option<String>| {
                #[allow(unused_parens, reason = "a line may have one field")]
                let ($($name),*) = values;
                $crate::words::parts::event!(
                    $crate::words::parts::Level::$level,
                    $($name = $($shown)+,)*
                    late = late.map($crate::words::parts::display),
                    "{message}"
                );
            });
        }
    };
}

macro_rules! error_ {
    ($($line:tt)+) => { $crate::words::line::line!(ERROR: $($line)+) };
}

macro_rules! warn_ {
    ($($line:tt)+) => { $crate::words::line::line!(WARN: $($line)+) };
}

macro_rules! info_ {
    ($($line:tt)+) => { $crate::words::line::line!(INFO: $($line)+) };
}

macro_rules! debug_ {
    ($($line:tt)+) => { $crate::words::line::line!(DEBUG: $($line)+) };
}

pub(crate) use debug_ as debug;
pub(crate) use error_ as error;
pub(crate) use info_ as info;
pub(crate) use line;
pub(crate) use warn_ as warn;
