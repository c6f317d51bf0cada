//! Fields of operations, events and messages: how each type is encoded, named in `docs/formats.md`, shown as JSON, and drawn for
//! tests.
//!
//! A field's own type says so, unless the table names another codec: `size: u64 as FileBytes` is an integer that is refused past
//! the largest file, `needs: Vec<Need> as Max<Need, 4096>` a list of at most 4,096 items.
//!
//! ```text
//!   Code     bytes of a value, and its limits       Sample   a valid value from random bytes
//!   Tagged   the same, parted into a tag byte       Shown    JSON
//!            and what follows it
//! ```
//!
//! Invariants:
//! - `take(put(value)) == value` for every value that `check` passes.
//! - `take` never panics, and allocates at most a small multiple of the bytes that are there: every count is checked against
//!   the bytes left.

mod change;
mod cred;
mod merge;
mod outcome;
mod sample;
mod values;

use std::fmt;

use chiton_types::Position;
use chiton_types::codec::{Malformed, Put, Take};
use serde_json::Value;

use crate::table::Layout;

pub use cred::GROUPS_MAX;
pub use sample::Samples;
pub use values::{Bits, FileBytes, Fixed, Hidden, Positive, Range, Text, Upto};

/// Most items for which memory is reserved before the first is read: a sender can claim any count.
const ITEMS_RESERVED_MAX: usize = 1024;

/// How a value of type `T` is written.
pub trait Code<T> {
    /// Fewest bytes that it takes.
    const BYTES_MIN: usize;

    /// Its form in `docs/formats.md`.
    fn form() -> String;

    fn put(value: &T, out: &mut Vec<u8>);

    /// Reads one.
    ///
    /// # Errors
    /// If the bytes are not the encoding of a value within its limits.
    fn take(from: &mut Take<'_>) -> Result<T, Malformed>;

    /// Whether [`Code::take`] would accept the counts and lengths of this value.
    ///
    /// # Errors
    /// The first limit that it exceeds.
    #[inline]
    fn check(_: &T) -> Result<(), OverLimit> {
        Ok(())
    }

    /// The form of a list of them in `docs/formats.md`.
    fn form_all() -> String {
        format!("list of ({})", Self::form())
    }

    /// Appends the items of a list.
    #[inline]
    fn put_all(items: &[T], out: &mut Vec<u8>) {
        items.iter().for_each(|item| Self::put(item, out));
    }

    /// [`Code::check`] for the items of a list. Where items have no limits, the compiler drops the loop.
    ///
    /// # Errors
    /// The first limit that an item exceeds.
    #[inline]
    fn check_all(items: &[T]) -> Result<(), OverLimit> {
        items.iter().try_for_each(Self::check)
    }

    /// Reads the items of a list, of which as many bytes as `count` items take at least are there.
    ///
    /// # Errors
    /// As [`Code::take`].
    #[inline]
    fn take_all(count: usize, from: &mut Take<'_>) -> Result<Vec<T>, Malformed> {
        let mut items = Vec::with_capacity(count.min(ITEMS_RESERVED_MAX));
        for _ in 0..count {
            items.push(Self::take(from)?);
        }
        Ok(items)
    }
}

/// The encoding of a type `T`: a tag byte and a rest. Two types without a common tag may stand at one place of a message: the tag then says
/// which of them it is.
pub trait Tagged<T> {
    /// Its form in `docs/formats.md`.
    fn form() -> String;

    fn tag(value: &T) -> u8;

    /// Appends what follows the tag.
    fn put_rest(value: &T, out: &mut Vec<u8>);

    /// Reads what follows the tag.
    ///
    /// # Errors
    /// If no value has this tag, or as [`Code::take`].
    fn take_rest(tag: u8, from: &mut Take<'_>) -> Result<T, Malformed>;

    /// Whether [`Tagged::take_rest`] would accept the counts and lengths of this value.
    ///
    /// # Errors
    /// The first limit that it exceeds.
    #[inline]
    fn check_rest(_: &T) -> Result<(), OverLimit> {
        Ok(())
    }
}

/// A valid value of type `T`, for tests of round trips and for fuzzing.
pub trait Sample<T> {
    /// Draws one. Every variant and every shape of a field comes of some bytes.
    fn sample(from: &mut Samples<'_>) -> T;

    /// Draws the items of a list.
    fn sample_all(from: &mut Samples<'_>) -> Vec<T> {
        (0..from.below(6)).map(|_| Self::sample(from)).collect()
    }
}

/// An enum whose variants a test draws one by one, so that it draws each.
pub trait Variants<T> {
    /// The names of the variants, in the order of their declaration.
    const VARIANTS: &'static [&'static str];

    /// Draws a value of the variant at this place of [`Variants::VARIANTS`].
    ///
    /// # Panics
    /// If there is none at this place.
    fn sample_variant(at: usize, from: &mut Samples<'_>) -> T;
}

/// A type with a place in `docs/formats.md`.
pub trait Listed {
    /// Its name in the fields of other types there.
    const TITLE: &'static str;

    /// Its entries: one, or one of each tag.
    fn layouts() -> Vec<Layout>;
}

/// How a value of type `T` is shown as JSON.
pub trait Shown<T> {
    fn json(value: &T) -> Value;

    /// A list of them.
    fn json_all(items: &[T]) -> Value {
        items.iter().map(Self::json).collect()
    }
}

/// A count or a length in a message is over its limit: a peer would refuse the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverLimit {
    /// The field of the message; empty until the message names it.
    pub field: &'static str,
    /// Items, or bytes, that it has.
    pub count: usize,
    /// Most that it may have.
    pub max: usize,
}

impl OverLimit {
    /// The limit of this field of a message, unless it is known to be that of a field within.
    pub fn of(self, field: &'static str) -> OverLimit {
        if self.field.is_empty() { OverLimit { field, ..self } } else { self }
    }
}

impl fmt::Display for OverLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OverLimit { field, count, max } = self;
        write!(f, "`{field}` of the message has {count} items or bytes, at most {max} are allowed; split it")
    }
}

impl std::error::Error for OverLimit {}

/// `code!(Type, bytes, "form", put, take[, json])`; `code!(Codec => Type, …)` is for a type that has another codec already.
/// `draw = …` says how a sample is drawn, and `check = …` at the end what is within the type's limits, if it has any.
#[macro_export]
macro_rules! code {
    ($codec:ty => $type:ty, $min:expr, $form:expr, $put:expr, $take:expr $(, $json:expr)?
        $(; draw = $draw:expr)? $(; check = $check:expr)?) => {
        impl $crate::field::Code<$type> for $codec {
            const BYTES_MIN: usize = $min;
            fn form() -> String {
                $form.to_owned()
            }
            #[inline]
            fn put(value: &$type, out: &mut Vec<u8>) {
                let put: fn(&$type, &mut Vec<u8>) = $put;
                put(value, out);
            }
            #[inline]
            fn take(from: &mut ::chiton_types::Take<'_>) -> Result<$type, ::chiton_types::Malformed> {
                let take: fn(&mut ::chiton_types::Take<'_>) -> Result<$type, ::chiton_types::Malformed> = $take;
                take(from)
            }
            $(#[inline]
            fn check(value: &$type) -> Result<(), $crate::field::OverLimit> {
                let check: fn(&$type) -> Result<(), $crate::field::OverLimit> = $check;
                check(value)
            })?
        }
        $(impl $crate::field::Shown<$type> for $codec {
            fn json(value: &$type) -> ::serde_json::Value {
                let json: fn(&$type) -> ::serde_json::Value = $json;
                json(value)
            }
        })?
        $(impl $crate::field::Sample<$type> for $codec {
            fn sample(from: &mut $crate::field::Samples<'_>) -> $type {
                let draw: fn(&mut $crate::field::Samples<'_>) -> $type = $draw;
                draw(from)
            }
        })?
    };
    ($type:ty, $($rest:tt)+) => {
        $crate::code!($type => $type, $($rest)+);
    };
}

// A value that may be absent: 0, or 1 and the value.
impl<T, C: Code<T>> Code<Option<T>> for Option<C> {
    const BYTES_MIN: usize = 1;
    fn form() -> String {
        format!("[{}]", C::form())
    }
    #[inline]
    fn put(value: &Option<T>, out: &mut Vec<u8>) {
        out.put_u8(u8::from(value.is_some()));
        if let Some(value) = value {
            C::put(value, out);
        }
    }
    #[inline]
    fn take(from: &mut Take<'_>) -> Result<Option<T>, Malformed> {
        Ok(if crate::codec::take_flag(from)? { Some(C::take(from)?) } else { None })
    }
    #[inline]
    fn check(value: &Option<T>) -> Result<(), OverLimit> {
        value.as_ref().map_or(Ok(()), C::check)
    }
}

impl<T, C: Sample<T>> Sample<Option<T>> for Option<C> {
    fn sample(from: &mut Samples<'_>) -> Option<T> {
        from.flag().then(|| C::sample(from))
    }
}

impl<T, C: Shown<T>> Shown<Option<T>> for Option<C> {
    fn json(value: &Option<T>) -> Value {
        value.as_ref().map_or(Value::Null, C::json)
    }
}

impl<T: Code<T>> Code<Box<T>> for Box<T> {
    const BYTES_MIN: usize = T::BYTES_MIN;
    fn form() -> String {
        T::form()
    }
    #[inline]
    fn put(value: &Box<T>, out: &mut Vec<u8>) {
        T::put(value, out);
    }
    #[inline]
    fn take(from: &mut Take<'_>) -> Result<Box<T>, Malformed> {
        T::take(from).map(Box::new)
    }
    #[inline]
    fn check(value: &Box<T>) -> Result<(), OverLimit> {
        T::check(value)
    }
}

impl<T: Sample<T>> Sample<Box<T>> for Box<T> {
    fn sample(from: &mut Samples<'_>) -> Box<T> {
        Box::new(T::sample(from))
    }
}

impl<T: Shown<T>> Shown<Box<T>> for Box<T> {
    fn json(value: &Box<T>) -> Value {
        T::json(value)
    }
}

// A count and the items; of bytes, a length and the bytes.
impl<T, C: Code<T>> Code<Vec<T>> for Vec<C> {
    const BYTES_MIN: usize = 1;
    fn form() -> String {
        C::form_all()
    }
    #[inline]
    fn put(value: &Vec<T>, out: &mut Vec<u8>) {
        out.put_varint(value.len() as u64);
        C::put_all(value, out);
    }
    #[inline]
    fn take(from: &mut Take<'_>) -> Result<Vec<T>, Malformed> {
        let count = from.count(C::BYTES_MIN)?;
        C::take_all(count, from)
    }
    #[inline]
    fn check(value: &Vec<T>) -> Result<(), OverLimit> {
        C::check_all(value)
    }
}

impl<T, C: Sample<T>> Sample<Vec<T>> for Vec<C> {
    fn sample(from: &mut Samples<'_>) -> Vec<T> {
        C::sample_all(from)
    }
}

impl<T, C: Shown<T>> Shown<Vec<T>> for Vec<C> {
    fn json(value: &Vec<T>) -> Value {
        C::json_all(value)
    }
}

/// A list of at most `N` items that are written as `C` says; of bytes or text, at most `N` bytes.
#[derive(Debug)]
pub struct Max<C, const N: usize>(std::marker::PhantomData<C>);

impl<T, C: Code<T>, const N: usize> Code<Vec<T>> for Max<C, N> {
    const BYTES_MIN: usize = 1;
    fn form() -> String {
        format!("{} (at most {N})", C::form_all())
    }
    #[inline]
    fn put(value: &Vec<T>, out: &mut Vec<u8>) {
        <Vec<C> as Code<Vec<T>>>::put(value, out);
    }
    #[inline]
    fn take(from: &mut Take<'_>) -> Result<Vec<T>, Malformed> {
        let count = from.count(C::BYTES_MIN)?;
        if count > N {
            Err(Malformed { expected: "a count within its limit" })
        } else {
            C::take_all(count, from)
        }
    }
    #[inline]
    fn check(value: &Vec<T>) -> Result<(), OverLimit> {
        within::<N>(value.len())?;
        C::check_all(value)
    }
}

impl<T, C: Sample<T>, const N: usize> Sample<Vec<T>> for Max<C, N> {
    fn sample(from: &mut Samples<'_>) -> Vec<T> {
        let mut items = C::sample_all(from);
        items.truncate(N);
        items
    }
}

impl<const N: usize> Code<String> for Max<String, N> {
    const BYTES_MIN: usize = 1;
    fn form() -> String {
        format!("text (at most {N})")
    }
    #[inline]
    fn put(value: &String, out: &mut Vec<u8>) {
        String::put(value, out);
    }
    #[inline]
    fn take(from: &mut Take<'_>) -> Result<String, Malformed> {
        let text = String::take(from)?;
        if text.len() > N { Err(Malformed { expected: "a text within its limit" }) } else { Ok(text) }
    }
    #[inline]
    fn check(value: &String) -> Result<(), OverLimit> {
        within::<N>(value.len())
    }
}

impl<const N: usize> Sample<String> for Max<String, N> {
    fn sample(from: &mut Samples<'_>) -> String {
        String::sample(from)
    }
}

fn within<const N: usize>(count: usize) -> Result<(), OverLimit> {
    if count <= N { Ok(()) } else { Err(OverLimit { field: "", count, max: N }) }
}

macro_rules! tuples {
    ($($value:ident: $codec:ident = $at:tt),+) => {
        impl<$($value,)+ $($codec: Code<$value>),+> Code<($($value,)+)> for ($($codec,)+) {
            const BYTES_MIN: usize = 0 $(+ $codec::BYTES_MIN)+;
            fn form() -> String {
                [$($codec::form()),+].join(", ")
            }
            #[inline]
            fn put(value: &($($value,)+), out: &mut Vec<u8>) {
                $($codec::put(&value.$at, out);)+
            }
            #[inline]
            fn take(from: &mut Take<'_>) -> Result<($($value,)+), Malformed> {
                Ok(($($codec::take(from)?,)+))
            }
            #[inline]
            fn check(value: &($($value,)+)) -> Result<(), OverLimit> {
                $($codec::check(&value.$at)?;)+
                Ok(())
            }
        }

        impl<$($value,)+ $($codec: Sample<$value>),+> Sample<($($value,)+)> for ($($codec,)+) {
            fn sample(from: &mut Samples<'_>) -> ($($value,)+) {
                ($($codec::sample(from),)+)
            }
        }
    };
}

tuples!(A: C = 0, B: D = 1);
tuples!(A: C = 0, B: D = 1, E: F = 2);

/// Tags from here on are failures, where a result stands: below are those of what succeeded.
pub const FAILURES: u8 = 128;

// A success is written with the position of its event, which stands behind the tag.
impl<T, C: Tagged<T>> Tagged<(Position, T)> for (Position, C) {
    fn form() -> String {
        format!("tag of {}, position, rest", C::form())
    }
    #[inline]
    fn tag(value: &(Position, T)) -> u8 {
        C::tag(&value.1)
    }
    #[inline]
    fn put_rest(value: &(Position, T), out: &mut Vec<u8>) {
        out.put_u64(value.0.0);
        C::put_rest(&value.1, out);
    }
    #[inline]
    fn take_rest(tag: u8, from: &mut Take<'_>) -> Result<(Position, T), Malformed> {
        let position = Position(from.u64()?);
        Ok((position, C::take_rest(tag, from)?))
    }
    #[inline]
    fn check_rest(value: &(Position, T)) -> Result<(), OverLimit> {
        C::check_rest(&value.1)
    }
}

impl<T, E, C: Tagged<T>, F: Tagged<E>> Tagged<Result<T, E>> for Result<C, F> {
    fn form() -> String {
        format!("{} or {}", C::form(), F::form())
    }
    #[inline]
    fn tag(value: &Result<T, E>) -> u8 {
        match value {
            Ok(value) => C::tag(value),
            Err(failure) => F::tag(failure),
        }
    }
    #[inline]
    fn put_rest(value: &Result<T, E>, out: &mut Vec<u8>) {
        match value {
            Ok(value) => C::put_rest(value, out),
            Err(failure) => F::put_rest(failure, out),
        }
    }
    #[inline]
    fn take_rest(tag: u8, from: &mut Take<'_>) -> Result<Result<T, E>, Malformed> {
        Ok(if tag < FAILURES { Ok(C::take_rest(tag, from)?) } else { Err(F::take_rest(tag, from)?) })
    }
    #[inline]
    fn check_rest(value: &Result<T, E>) -> Result<(), OverLimit> {
        match value {
            Ok(value) => C::check_rest(value),
            Err(failure) => F::check_rest(failure),
        }
    }
}

impl<T, E, C: Tagged<T>, F: Tagged<E>> Code<Result<T, E>> for Result<C, F> {
    const BYTES_MIN: usize = 1;
    fn form() -> String {
        format!("{} or {}", C::form(), F::form())
    }
    #[inline]
    fn put(value: &Result<T, E>, out: &mut Vec<u8>) {
        out.put_u8(Self::tag(value));
        Self::put_rest(value, out);
    }
    #[inline]
    fn take(from: &mut Take<'_>) -> Result<Result<T, E>, Malformed> {
        let tag = from.u8()?;
        Self::take_rest(tag, from)
    }
    #[inline]
    fn check(value: &Result<T, E>) -> Result<(), OverLimit> {
        Self::check_rest(value)
    }
    // Without the detour over `Tagged`, which would copy each result once more: batches consist of little else.
    #[inline]
    fn take_all(count: usize, from: &mut Take<'_>) -> Result<Vec<Result<T, E>>, Malformed> {
        let mut items = Vec::with_capacity(count.min(ITEMS_RESERVED_MAX));
        for _ in 0..count {
            let tag = from.u8()?;
            items.push(if tag < FAILURES {
                Ok(C::take_rest(tag, from)?)
            } else {
                Err(F::take_rest(tag, from)?)
            });
        }
        Ok(items)
    }
}

impl<T, E, C: Sample<T>, F: Sample<E>> Sample<Result<T, E>> for Result<C, F> {
    fn sample(from: &mut Samples<'_>) -> Result<T, E> {
        if from.flag() { Err(F::sample(from)) } else { Ok(C::sample(from)) }
    }
}

/// A field as `docs/formats.md` lists it: its name and form, or once if they are the same.
pub fn listed(name: &str, form: &str) -> String {
    if name == form { name.to_owned() } else { format!("{name} {form}") }
}

/// Adds a field to an object; one with the key `""` is an object whose fields are added, or is never shown.
pub(crate) fn add_json(object: &mut serde_json::Map<String, Value>, key: &str, value: Value) {
    match value {
        Value::Object(fields) if key.is_empty() => object.extend(fields),
        _ if key.is_empty() => {}
        value => drop(object.insert(key.to_owned(), value)),
    }
}
