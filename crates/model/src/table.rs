//! Declarations: one of a type gives the type, its bytes, its limits, its entry in `docs/formats.md`, and samples for tests.
//!
//! ```text
//!   record! { pub struct Lock "lock" { pub ino: Ino, pub pid: u32 as Fixed } }         the fields one after the other
//!   number! { pub enum LeaseMode "a lease" { None = 0, Shared = 1 } }                  one byte
//!   choice! { pub enum Call "a call" {                                                 a tag byte, then its fields
//!       0 Op { (1) open, op: Op }             tag 0, or 1 where `open` is set
//!       3 Attr { [leased, searchable] attr: Attr }      a byte of flags before the fields
//!       4 Lock(lock: Option<Lock>)
//!   } }
//! ```
//!
//! A field is `name: Type`, or `name: Type as Codec` ([`crate::field`]). Documentation and attributes are passed on to the type.
//! `record_code!` gives a type that stands elsewhere its bytes.

/// The codec of a field: the one that the table names, else the field's own type.
#[doc(hidden)]
#[macro_export]
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

pub(crate) use or_name;

/// A type of a message, as `docs/formats.md` lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The tag, of a variant.
    pub tag: Option<u8>,
    pub name: &'static str,
    /// Its fields, in the order of their bytes.
    pub fields: String,
}

/// A struct, see the module.
#[macro_export]
macro_rules! record {
    ($(#[$meta:meta])* pub struct $name:ident $form:literal {
        $($(#[$doc:meta])* pub $field:ident: $type:ty $(as $codec:ty)?),+ $(,)?
    }) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[$doc])* pub $field: $type),+
        }

        $crate::record_code! { $name $form { $($field: $type $(as $codec)?),+ } }
    };
}

/// The bytes of a struct that is declared elsewhere.
#[macro_export]
macro_rules! record_code {
    ($name:ident $form:literal { $($field:ident: $type:ty $(as $codec:ty)?),+ $(,)? }) => {
        impl $crate::field::Code<$name> for $name {
            const BYTES_MIN: usize =
                0 $(+ <$crate::codec!($type $(, $codec)?) as $crate::field::Code<$type>>::BYTES_MIN)+;
            fn form() -> String {
                $form.to_owned()
            }
            #[inline]
            fn put(value: &$name, out: &mut Vec<u8>) {
                $(<$crate::codec!($type $(, $codec)?) as $crate::field::Code<$type>>::put(&value.$field, out);)+
            }
            #[inline]
            fn take(from: &mut ::chiton_types::Take<'_>) -> Result<$name, ::chiton_types::Malformed> {
                Ok($name {
                    $($field: <$crate::codec!($type $(, $codec)?) as $crate::field::Code<$type>>::take(from)?),+
                })
            }
            #[inline]
            fn check(value: &$name) -> Result<(), $crate::field::OverLimit> {
                $(<$crate::codec!($type $(, $codec)?) as $crate::field::Code<$type>>::check(&value.$field)
                    .map_err(|over| over.of(stringify!($field)))?;)+
                Ok(())
            }
        }

        impl $crate::field::Sample<$name> for $name {
            fn sample(from: &mut $crate::field::Samples<'_>) -> $name {
                $name {
                    $($field: <$crate::codec!($type $(, $codec)?) as $crate::field::Sample<$type>>::sample(from)),+
                }
            }
        }

        impl $crate::field::Listed for $name {
            const TITLE: &'static str = $form;
            fn layouts() -> Vec<$crate::Layout> {
                let fields: Vec<String> = vec![$($crate::field::listed(
                    stringify!($field),
                    &<$crate::codec!($type $(, $codec)?) as $crate::field::Code<$type>>::form(),
                )),+];
                vec![$crate::Layout { tag: None, name: stringify!($name), fields: fields.join(", ") }]
            }
        }
    };
}

/// An enum without fields, see the module.
#[macro_export]
macro_rules! number {
    ($(#[$meta:meta])* pub enum $name:ident $form:literal {
        $($(#[$doc:meta])* $variant:ident = $number:literal),+ $(,)?
    }) => {
        $(#[$meta])*
        #[repr(u8)]
        pub enum $name {
            $($(#[$doc])* $variant = $number),+
        }

        impl $crate::field::Tagged<$name> for $name {
            fn form() -> String {
                $form.to_owned()
            }
            #[inline]
            fn tag(value: &$name) -> u8 {
                match value {
                    $($name::$variant => $number),+
                }
            }
            #[inline]
            fn put_rest(_: &$name, _: &mut Vec<u8>) {}
            #[inline]
            fn take_rest(tag: u8, _: &mut ::chiton_types::Take<'_>) -> Result<$name, ::chiton_types::Malformed> {
                match tag {
                    $($number => Ok($name::$variant),)+
                    _ => Err(::chiton_types::Malformed { expected: $form }),
                }
            }
        }

        impl $crate::field::Code<$name> for $name {
            const BYTES_MIN: usize = 1;
            fn form() -> String {
                $form.to_owned()
            }
            #[inline]
            fn put(value: &$name, out: &mut Vec<u8>) {
                out.push(<$name as $crate::field::Tagged<$name>>::tag(value));
            }
            #[inline]
            fn take(from: &mut ::chiton_types::Take<'_>) -> Result<$name, ::chiton_types::Malformed> {
                let tag = from.u8()?;
                <$name as $crate::field::Tagged<$name>>::take_rest(tag, from)
            }
        }

        impl $crate::field::Sample<$name> for $name {
            fn sample(from: &mut $crate::field::Samples<'_>) -> $name {
                let variants = [$($name::$variant),+];
                let at = from.below(variants.len());
                variants.into_iter().nth(at).expect("a variant")
            }
        }

        impl $crate::field::Listed for $name {
            const TITLE: &'static str = $form;
            fn layouts() -> Vec<$crate::Layout> {
                let numbers: Vec<String> = vec![$(format!("{} {}", $number, stringify!($variant))),+];
                vec![$crate::Layout { tag: None, name: stringify!($name), fields: numbers.join(", ") }]
            }
        }
    };
}

/// An enum with fields, see the module.
#[macro_export]
macro_rules! choice {
    ($(#[$meta:meta])* pub enum $name:ident $form:literal {
        $(
            $(#[$doc:meta])*
            $tag:literal $variant:ident
            $({
                $(($tag_if:literal) $(#[$in_tag_doc:meta])* $in_tag:ident,)?
                $([$($(#[$bit_doc:meta])* $bit:ident),+ $(,)?])?
                $($(#[$field_doc:meta])* $field:ident: $type:ty $(as $codec:ty)?),* $(,)?
            })?
            $(($($inner:ident: $inner_type:ty $(as $inner_codec:ty)?),+))?
            $(valid { $valid:expr })?
        )+
    }) => {
        $(#[$meta])*
        pub enum $name {
            $(
                $(#[$doc])*
                $variant
                $({
                    $($(#[$in_tag_doc])* $in_tag: bool,)?
                    $($($(#[$bit_doc])* $bit: bool,)+)?
                    $($(#[$field_doc])* $field: $type,)*
                })?
                $(($($inner_type),+))?
            ),+
        }

        $crate::choice_code! { $name => $name $form {
            $(
                $tag $variant
                $({ $(($tag_if) $in_tag,)? $([$($bit),+])? $($field: $type $(as $codec)?),* })?
                $(($($inner: $inner_type $(as $inner_codec)?),+))?
                $(valid { $valid })?
            )+
        } }
    };
}

/// The bytes of an enum that is declared elsewhere, as `Codec`, see the module.
#[macro_export]
macro_rules! choice_code {
    ($coder:ident => $name:ident $form:literal {
        $(
            $tag:literal $variant:ident
            $({
                $(($tag_if:literal) $in_tag:ident,)?
                $([$($bit:ident),+])?
                $($field:ident: $type:ty $(as $codec:ty)?),* $(,)?
            })?
            $(($($inner:ident: $inner_type:ty $(as $inner_codec:ty)?),+))?
            $(valid { $valid:expr })?
        )+
    }) => {
        #[allow(unused_variables, unused_mut, unused_assignments, reason = "variants have flags, fields, both or neither")]
        impl $crate::field::Tagged<$name> for $coder {
            fn form() -> String {
                $form.to_owned()
            }
            #[inline]
            fn tag(value: &$name) -> u8 {
                match value {
                    $($name::$variant { $($($in_tag,)?)? .. } => {
                        let tag = $tag;
                        $($(let tag = if *$in_tag { $tag_if } else { tag };)?)?
                        tag
                    })+
                }
            }
            #[inline]
            fn put_rest(value: &$name, out: &mut Vec<u8>) {
                match value {
                    $($name::$variant $({ $($in_tag,)? $($($bit,)+)? $($field,)* })? $(($($inner),+))? => {
                        $(
                            $(
                                let (mut bits, mut bit) = (0u8, 1u8);
                                $(
                                    bits |= if *$bit { bit } else { 0 };
                                    bit <<= 1;
                                )+
                                out.push(bits);
                            )?
                            $(<$crate::codec!($type $(, $codec)?) as $crate::field::Code<$type>>::put($field, out);)*
                        )?
                        $($(<$crate::codec!($inner_type $(, $inner_codec)?) as $crate::field::Code<$inner_type>>
                            ::put($inner, out);)+)?
                    })+
                }
            }
            #[inline]
            fn take_rest(tag: u8, from: &mut ::chiton_types::Take<'_>) -> Result<$name, ::chiton_types::Malformed> {
                Ok(match tag {
                    $($tag $($(| $tag_if)?)? => {
                        $(
                            $(let $in_tag = tag == $tag_if;)?
                            $(
                                let (bits, mut bit) = (from.u8()?, 1u8);
                                $(
                                    let $bit = bits & bit != 0;
                                    bit <<= 1;
                                )+
                                if bits >= bit {
                                    return Err(::chiton_types::Malformed { expected: "known flags" });
                                }
                            )?
                            $(let $field =
                                <$crate::codec!($type $(, $codec)?) as $crate::field::Code<$type>>::take(from)?;)*
                        )?
                        $($(let $inner = <$crate::codec!($inner_type $(, $inner_codec)?)
                            as $crate::field::Code<$inner_type>>::take(from)?;)+)?
                        $(
                            let valid: bool = $valid;
                            if !valid {
                                return Err(::chiton_types::Malformed { expected: $form });
                            }
                        )?
                        $name::$variant $({ $($in_tag,)? $($($bit,)+)? $($field,)* })? $(($($inner),+))?
                    })+
                    _ => return Err(::chiton_types::Malformed { expected: $form }),
                })
            }
            #[inline]
            fn check_rest(value: &$name) -> Result<(), $crate::field::OverLimit> {
                match value {
                    $($name::$variant $({ $($in_tag,)? $($($bit,)+)? $($field,)* })? $(($($inner),+))? => {
                        $($(<$crate::codec!($type $(, $codec)?) as $crate::field::Code<$type>>::check($field)
                            .map_err(|over| over.of(stringify!($field)))?;)*)?
                        $($(<$crate::codec!($inner_type $(, $inner_codec)?) as $crate::field::Code<$inner_type>>
                            ::check($inner).map_err(|over| over.of(stringify!($inner)))?;)+)?
                        Ok(())
                    })+
                }
            }
        }

        impl $crate::field::Code<$name> for $coder {
            const BYTES_MIN: usize = 1;
            fn form() -> String {
                $form.to_owned()
            }
            #[inline]
            fn put(value: &$name, out: &mut Vec<u8>) {
                out.push(<$coder as $crate::field::Tagged<$name>>::tag(value));
                <$coder as $crate::field::Tagged<$name>>::put_rest(value, out);
            }
            #[inline]
            fn take(from: &mut ::chiton_types::Take<'_>) -> Result<$name, ::chiton_types::Malformed> {
                let tag = from.u8()?;
                <$coder as $crate::field::Tagged<$name>>::take_rest(tag, from)
            }
            #[inline]
            fn check(value: &$name) -> Result<(), $crate::field::OverLimit> {
                <$coder as $crate::field::Tagged<$name>>::check_rest(value)
            }
        }

        impl $crate::field::Variants<$name> for $coder {
            const VARIANTS: &'static [&'static str] = &[$(stringify!($variant)),+];

            #[allow(unused_variables, unused_assignments, reason = "the last number is not looked at")]
            fn sample_variant(at: usize, from: &mut $crate::field::Samples<'_>) -> $name {
                let mut number = 0;
                $(
                    if at == number {
                        loop {
                            $(
                                $(let $in_tag = from.flag();)?
                                $($(let $bit = from.flag();)+)?
                                $(let $field =
                                    <$crate::codec!($type $(, $codec)?) as $crate::field::Sample<$type>>::sample(from);)*
                            )?
                            $($(let $inner = <$crate::codec!($inner_type $(, $inner_codec)?)
                                as $crate::field::Sample<$inner_type>>::sample(from);)+)?
                            $(
                                // Without bytes every list is empty, so this ends.
                                let valid: bool = $valid;
                                if !valid {
                                    continue;
                                }
                            )?
                            return $name::$variant $({ $($in_tag,)? $($($bit,)+)? $($field,)* })? $(($($inner),+))?;
                        }
                    }
                    number += 1;
                )+
                panic!("variant {at} of {}", stringify!($name))
            }
        }

        impl $crate::field::Sample<$name> for $coder {
            fn sample(from: &mut $crate::field::Samples<'_>) -> $name {
                let at = from.below(<$coder as $crate::field::Variants<$name>>::VARIANTS.len());
                <$coder as $crate::field::Variants<$name>>::sample_variant(at, from)
            }
        }

        impl $crate::field::Listed for $coder {
            const TITLE: &'static str = $form;
            fn layouts() -> Vec<$crate::Layout> {
                let mut layouts = Vec::new();
                $(
                    let fields: Vec<String> = vec![
                        $($({
                            let bits: &[&str] = &[$(stringify!($bit)),+];
                            format!("flags u8 (bits from 0: {})", bits.join(", "))
                        },)?
                        $($crate::field::listed(
                            stringify!($field),
                            &<$crate::codec!($type $(, $codec)?) as $crate::field::Code<$type>>::form(),
                        ),)*)?
                        $($($crate::field::listed(
                            stringify!($inner),
                            &<$crate::codec!($inner_type $(, $inner_codec)?) as $crate::field::Code<$inner_type>>::form(),
                        )),+)?
                    ];
                    let fields = fields.join(", ");
                    layouts.push($crate::Layout { tag: Some($tag), name: stringify!($variant), fields: fields.clone() });
                    $($(layouts.push($crate::Layout {
                        tag: Some($tag_if),
                        name: concat!(stringify!($variant), " with ", stringify!($in_tag)),
                        fields,
                    });)?)?
                )+
                layouts
            }
        }
    };
}
