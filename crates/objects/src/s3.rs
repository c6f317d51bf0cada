//! Objects in a bucket of an S3 service.

mod location;

pub use location::S3Location;
