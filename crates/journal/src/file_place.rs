//! Segments as files of one directory, named by their number: `0000000000000001.seg`.
//!
//! Invariants:
//! - The directory is synced after a file was made, before anything is appended to it.
//! - A file that could not be made whole is removed again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::place::{Place, PlaceError, SegmentInfo, Shape};

#[derive(Debug)]
pub struct FilePlace {
    path: PathBuf,
    directory: File,
    /// The segment that is being written, kept open.
    active: Mutex<Option<(u64, Arc<File>)>>,
}

impl FilePlace {
    /// Opens the directory, made if it is missing.
    ///
    /// # Errors
    /// If it cannot be made, opened or synced.
    pub fn open(path: &Path) -> Result<FilePlace, PlaceError> {
        let failed = |e| sort("open the journal's directory", path, &e);
        if !path.is_dir() {
            fs::create_dir_all(path).map_err(failed)?;
            if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                File::open(parent).and_then(|dir| dir.sync_all()).map_err(failed)?;
            }
        }
        let directory = File::open(path).map_err(failed)?;
        Ok(FilePlace { path: path.to_owned(), directory, active: Mutex::new(None) })
    }

    fn path_of(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number:016x}.seg"))
    }

    fn opened(&self, number: u64) -> Result<Arc<File>, PlaceError> {
        let mut active = self.active.lock();
        if let Some((n, file)) = &*active
            && *n == number
        {
            return Ok(file.clone());
        }
        let path = self.path_of(number);
        let file = OpenOptions::new().write(true).open(&path).map_err(|e| sort("open", &path, &e))?;
        let file = Arc::new(file);
        *active = Some((number, file.clone()));
        Ok(file)
    }
}

fn sort(verb: &str, path: &Path, error: &io::Error) -> PlaceError {
    let text = format!("cannot {verb} {}: {error}", path.display());
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => PlaceError::NoSpace(text),
        ErrorKind::NotFound => PlaceError::Missing,
        ErrorKind::AlreadyExists => PlaceError::Exists,
        _ => PlaceError::Failed(text),
    }
}

fn parse_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".seg")?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    (format!("{number:016x}") == digits).then_some(number)
}

impl Place for FilePlace {
    fn shape(&self) -> Shape {
        Shape::Grows
    }

    fn list(&self) -> Result<Vec<SegmentInfo>, PlaceError> {
        let failed = |e| sort("list", &self.path, &e);
        let mut segments = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if let Some(number) = entry.file_name().to_str().and_then(parse_name) {
                segments.push(SegmentInfo { number, bytes: entry.metadata().map_err(failed)?.len() });
            }
        }
        segments.sort_by_key(|segment| segment.number);
        Ok(segments)
    }

    fn holds(&self, number: u64) -> Result<bool, PlaceError> {
        let path = self.path_of(number);
        path.try_exists().map_err(|e| sort("look for", &path, &e))
    }

    fn read(&self, number: u64, bytes_max: u64) -> Result<Vec<u8>, PlaceError> {
        let path = self.path_of(number);
        let failed = |e| sort("read", &path, &e);
        let file = File::open(&path).map_err(failed)?;
        let mut bytes = Vec::new();
        file.take(bytes_max).read_to_end(&mut bytes).map_err(failed)?;
        Ok(bytes)
    }

    fn create(&self, number: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        let path = self.path_of(number);
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let file = file.map_err(|e| sort("create", &path, &e))?;
        if let Err(e) = file.write_all_at(bytes, 0).and_then(|()| self.directory.sync_all()) {
            // Whether this succeeds or not: a segment without a whole header is void.
            let _ = fs::remove_file(&path);
            return Err(sort("create", &path, &e));
        }
        *self.active.lock() = Some((number, Arc::new(file)));
        Ok(())
    }

    fn publish(&self, number: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        // Not a segment's name: a leftover of a crash is ignored, and the next creation overwrites it.
        let new = self.path.join("new");
        let path = self.path_of(number);
        let write = || -> io::Result<()> {
            let mut file = File::create(&new)?;
            file.write_all(bytes)?;
            file.sync_all()
        };
        write().map_err(|e| sort("write", &new, &e))?;
        let linked = fs::hard_link(&new, &path).and_then(|()| self.directory.sync_all());
        let _ = fs::remove_file(&new);
        linked.map_err(|e| sort("create", &path, &e))
    }

    fn append(&self, number: u64, offset: u64, bytes: &[u8]) -> Result<(), PlaceError> {
        let file = self.opened(number)?;
        file.write_all_at(bytes, offset).map_err(|e| sort("write to", &self.path_of(number), &e))
    }

    fn sync(&self, number: u64) -> Result<(), PlaceError> {
        self.opened(number)?.sync_data().map_err(|e| sort("sync", &self.path_of(number), &e))
    }

    fn remove(&self, number: u64) -> Result<(), PlaceError> {
        self.active.lock().take_if(|(n, _)| *n == number);
        let path = self.path_of(number);
        match fs::remove_file(&path) {
            Ok(()) => self.directory.sync_all().map_err(|e| sort("sync", &self.path, &e)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            Err(e) => Err(sort("remove", &path, &e)),
        }
    }
}
