//! Where a file system is kept, as an administrator writes it: a directory, or `s3://bucket/prefix`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use chiton_s3::S3Location;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataAddress {
    /// A directory of this machine.
    Dir(PathBuf),
    /// A bucket and a prefix of an S3 service.
    S3(S3Location),
}

impl DataAddress {
    /// The directory, if it is one.
    pub fn dir(&self) -> Option<&Path> {
        match self {
            DataAddress::Dir(dir) => Some(dir),
            DataAddress::S3(_) => None,
        }
    }
}

impl FromStr for DataAddress {
    type Err = String;

    /// Everything that does not begin with `s3://` is a directory.
    fn from_str(text: &str) -> Result<DataAddress, String> {
        match text.starts_with(S3Location::SCHEME) {
            true => text.parse().map(DataAddress::S3),
            false if text.is_empty() => Err("name a directory or s3://BUCKET/PREFIX".to_owned()),
            false => Ok(DataAddress::Dir(text.into())),
        }
    }
}

impl fmt::Display for DataAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataAddress::Dir(dir) => dir.display().fmt(f),
            DataAddress::S3(location) => location.fmt(f),
        }
    }
}

impl From<&DataAddress> for DataAddress {
    fn from(address: &DataAddress) -> DataAddress {
        address.clone()
    }
}

impl From<&Path> for DataAddress {
    fn from(dir: &Path) -> DataAddress {
        DataAddress::Dir(dir.to_owned())
    }
}

impl From<&PathBuf> for DataAddress {
    fn from(dir: &PathBuf) -> DataAddress {
        DataAddress::Dir(dir.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_and_buckets_are_told_apart() {
        let parse = |text: &str| text.parse::<DataAddress>();
        assert_eq!(parse("/srv/chiton"), Ok(DataAddress::Dir("/srv/chiton".into())));
        assert_eq!(parse("s3:x"), Ok(DataAddress::Dir("s3:x".into())));
        assert!(matches!(parse("s3://bucket/a/b"), Ok(DataAddress::S3(_))));
        for text in ["s3://bucket/a/b", "s3://bucket", "/srv/chiton"] {
            assert_eq!(parse(text).expect("an address").to_string(), text);
        }
        for odd in ["", "s3://", "s3://b/../c", "s3://bucket//x", "s3://buc ket/x"] {
            assert!(parse(odd).is_err(), "{odd}");
        }
    }
}
