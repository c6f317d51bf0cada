//! What the tables of operations and events have in common.

/// The codec of a field: the one that the table names, else the field's own type.
macro_rules! codec {
    ($type:ty) => {
        $type
    };
    ($type:ty, $codec:ty) => {
        $codec
    };
}

/// The key of a field in JSON: the one that the table gives, else the field's name.
macro_rules! or_name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident, $key:literal) => {
        $key
    };
}

pub(crate) use {codec, or_name};
