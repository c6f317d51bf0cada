//! A file system in a bucket.
//!
//! ```text
//!   chiton.json      as in a data directory; put if absent, last: its presence means "formatted"
//!   holders/         who serves it (see hold/objects.rs)
//!   journal/  meta/                  of plate 0
//!   plates/1/journal  plates/1/meta  of plate 1, and so on
//!   blocks/                          of all plates
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use chiton_journal::ObjectPlace;
use chiton_metastore::{Metastore, SlateMetastore, SlateOptions, StoreError};
use chiton_objects::{ObjectError, Objects, Retry, RetryOptions};
use chiton_runtime::{RealWorld, World};
use chiton_s3::{S3Location, S3Objects};
use chiton_types::PlateId;

use crate::address::DataAddress;
use crate::error::{FormatError, StartError};
use crate::format::{
    FilesystemInfo, FormatOptions, INFO_FILE, PLATES_FOLDER, format_stores, info_text, parse_info,
};
use crate::stores::{Stores, below};

/// Prefixes that an interrupted format may have left. A server that has served a file system has left `holders/`, too.
const OURS: [&str; 4] = ["journal", "meta", PLATES_FOLDER, "probe"];
const PAGE: usize = 1000;

/// Objects below the location. Calls that fail for now are tried again.
pub(crate) struct Bucket {
    pub(crate) s3: Arc<S3Objects>,
    pub(crate) objects: Arc<dyn Objects>,
}

impl Bucket {
    /// Asks the service nothing.
    pub(crate) fn open(location: &S3Location) -> Result<Bucket, String> {
        let s3 = Arc::new(S3Objects::open(location)?);
        let sleeper = Arc::new(chiton_runtime::thread::sleep);
        let objects = Retry::new(s3.clone(), Arc::new(RealWorld), sleeper, RetryOptions::default());
        Ok(Bucket { s3, objects: Arc::new(objects) })
    }

    pub(crate) fn stores(&self, plate: PlateId) -> Stores {
        let below = |name: &str| below(plate, name);
        let place = ObjectPlace::new(self.objects.clone(), &below("journal"));
        let location = self.s3.location().below(&below("meta"));
        let client = self.s3.library_client();
        let open_meta = move || -> Result<Arc<dyn Metastore>, StoreError> {
            let name = location.to_string();
            let store =
                SlateMetastore::open(client.clone(), &location.prefix, &name, SlateOptions::default());
            Ok(Arc::new(store?))
        };
        Stores {
            objects: self.objects.clone(),
            open_meta: Box::new(open_meta),
            place: Arc::new(place),
            objects_address: String::new(),
        }
    }
}

/// Makes a new file system below a prefix. `monitor`: of the cluster that is to serve it.
pub(crate) fn format_bucket(
    location: &S3Location,
    options: &FormatOptions,
    monitor: Option<&str>,
    world: &dyn World,
) -> Result<FilesystemInfo, FormatError> {
    let bucket = Bucket::open(location).map_err(FormatError::Failed)?;
    bucket.s3.probe(world.random()).map_err(FormatError::Failed)?;
    let failed = |e: ObjectError| FormatError::Failed(bucket.s3.explain(&e));
    let objects = bucket.objects.clone();
    let formatted = || FormatError::Formatted(DataAddress::S3(location.clone()));
    match objects.size(INFO_FILE) {
        Ok(_) => return Err(formatted()),
        Err(e) if e.is_not_found() => {}
        Err(e) => return Err(failed(e)),
    }
    let mut left = BTreeSet::new();
    loop {
        let page = objects.list("", left.last().map(String::as_str), PAGE).map_err(failed)?;
        if page.is_empty() {
            break;
        }
        left.extend(page.into_iter().map(|object| object.key));
        let foreign = |key: &String| !OURS.contains(&key.split('/').next().unwrap_or(""));
        if left.iter().any(foreign) {
            return Err(FormatError::NotEmpty(DataAddress::S3(location.clone())));
        }
    }
    for key in left {
        objects.delete(&key).map_err(failed)?;
    }
    let stores: Vec<Stores> = (0..options.plates).map(|plate| bucket.stores(PlateId(plate))).collect();
    let info = format_stores(&stores, options, world)?;
    let info = FilesystemInfo { monitor: monitor.map(str::to_owned), ..info };
    let text = info_text(&info);
    match objects.put_if_absent(INFO_FILE, text.as_bytes()) {
        Ok(true) => Ok(info),
        Ok(false) => Err(formatted()),
        Err(e) => Err(failed(e)),
    }
}

/// Reads the description of the file system below a prefix.
pub(crate) fn bucket_info(bucket: &Bucket, data: &DataAddress) -> Result<FilesystemInfo, StartError> {
    match bucket.objects.get(INFO_FILE, None) {
        Ok(text) => parse_info(&text, data),
        Err(e) if e.is_not_found() => Err(without_info(&*bucket.objects, data)
            .unwrap_or_else(|e| StartError::Failed(bucket.s3.explain(&e)))),
        Err(e) => Err(StartError::Failed(bucket.s3.explain(&e))),
    }
}

/// Why there is no `chiton.json`: there is no file system, or it was one and has lost that.
fn without_info(objects: &dyn Objects, data: &DataAddress) -> Result<StartError, ObjectError> {
    let served = !objects.list("holders/", None, 1)?.is_empty();
    Ok(match served {
        true => StartError::Damaged(data.clone(), "it is missing, although its stores exist".to_owned()),
        false => StartError::NotFormatted(data.clone()),
    })
}

#[cfg(test)]
mod tests {
    use chiton_objects::MemoryObjects;

    use super::*;

    #[test]
    fn a_file_system_that_lost_its_description_is_told_from_none() {
        let data = DataAddress::S3("s3://bucket/fs".parse().expect("a location"));
        let objects = MemoryObjects::new();
        objects.put("journal/0000000000000001", b"a format was interrupted").expect("put");
        assert!(matches!(without_info(&objects, &data), Ok(StartError::NotFormatted(_))));
        objects.put("holders/0000000000000001", b"it was served").expect("put");
        let error = without_info(&objects, &data).expect("asked");
        assert!(
            matches!(error, StartError::Damaged(..)) && error.to_string().contains("restore it"),
            "{error}"
        );
        assert!(!OURS.contains(&"holders"), "else a format would remove it");
    }
}
