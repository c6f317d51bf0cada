//! `s3://bucket/prefix`.

use std::fmt;
use std::str::FromStr;

use chiton_objects::check_key;

/// A bucket, and where in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Location {
    pub bucket: String,
    /// The prefix of all keys, without slashes at its ends; may be empty.
    pub prefix: String,
}

impl S3Location {
    /// The scheme of its text form.
    pub const SCHEME: &'static str = "s3://";

    /// A location below this one in the same bucket.
    pub fn below(&self, part: &str) -> S3Location {
        let prefix = match self.prefix.is_empty() {
            true => part.to_owned(),
            false => format!("{}/{part}", self.prefix),
        };
        S3Location { bucket: self.bucket.clone(), prefix }
    }
}

impl FromStr for S3Location {
    type Err = String;

    fn from_str(text: &str) -> Result<S3Location, String> {
        let rest = text.strip_prefix(Self::SCHEME);
        let rest =
            rest.ok_or_else(|| format!("{text:?} is no place in S3: write it as s3://BUCKET/PREFIX"))?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        let is_bucket = (3..=63).contains(&bucket.len())
            && bucket.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
        if !is_bucket {
            return Err(format!(
                "{bucket:?} is no bucket's name: it has 3 to 63 letters, digits, '.', '-', '_'"
            ));
        }
        if !prefix.is_empty() {
            check_key(prefix).map_err(|e| e.to_string())?;
        }
        Ok(S3Location { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }
}

impl fmt::Display for S3Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Self::SCHEME, self.bucket)?;
        match self.prefix.is_empty() {
            true => Ok(()),
            false => write!(f, "/{}", self.prefix),
        }
    }
}
