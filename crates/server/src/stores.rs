//! Where a server keeps things, as components: directories in earnest, memory in tests and simulation.

use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use chiton_journal::{FilePlace, ObjectPlace, Place};
use chiton_metastore::{FjallMetastore, FjallOptions, Metastore, SlateMetastore, SlateOptions, StoreError};
use chiton_namespace::{RowSource, Rows};
use chiton_objects::{LocalObjects, Objects};
use chiton_runtime::sync::{Mutex, RwLock};
use chiton_types::PlateId;

use crate::address::DataAddress;
use crate::bucket::Bucket;
use crate::error::StartError;
use crate::format::{PLATES_FOLDER, STORES_FOLDER};
use crate::reserve::{self, Reserve, ReservedPlace};
use crate::view::View;

/// The space that the metadata store may need to open, in bytes.
const OPEN_META_BYTES: u64 = 1 << 20;

/// Opens the metadata store; again after an error that asks for it.
pub type OpenMeta = Box<dyn Fn() -> Result<Arc<dyn Metastore>, StoreError> + Send + Sync>;

/// The three stores of a plate.
pub struct Stores {
    pub objects: Arc<dyn Objects>,
    /// Opens the metadata store. Called at the start, and again after a commit failed: committed rows must be there each time.
    pub open_meta: OpenMeta,
    /// The journal's segments.
    pub place: Arc<dyn Place>,
    /// Where clients on this machine find the object store (`local:/path`); empty if they cannot.
    pub objects_address: String,
}

impl Stores {
    /// The stores of a plate, with the usual settings. Reading journal and objects disturbs nobody; whoever changes
    /// something, or opens the metadata store, takes a [`crate::Ownership`] first.
    ///
    /// # Errors
    /// [`StartError::Failed`].
    pub fn open(data: &DataAddress, plate: PlateId) -> Result<Stores, StartError> {
        match data {
            DataAddress::Dir(dir) => {
                let objects = local_objects(dir).map_err(StartError::Failed)?;
                Stores::local_of(dir, plate, objects, FjallOptions::default()).map_err(StartError::Failed)
            }
            DataAddress::S3(location) => {
                Bucket::open(location).map(|bucket| bucket.stores(plate)).map_err(StartError::Failed)
            }
        }
    }

    /// The stores of a plate in a directory that several servers share, or in a bucket. Opening the metadata store, or the journal to
    /// write, takes them from the server that has them.
    ///
    /// # Errors
    /// [`StartError::Failed`].
    pub fn open_shared(data: &DataAddress, plate: PlateId) -> Result<Stores, StartError> {
        match data {
            DataAddress::Dir(dir) => {
                let shared = SharedDir::open(dir).map_err(StartError::Failed)?;
                Ok(shared.stores(plate))
            }
            DataAddress::S3(_) => Stores::open(data, plate),
        }
    }

    /// Those of all plates in a directory that several servers share.
    ///
    /// # Errors
    /// In words.
    pub(crate) fn shared(dir: &Path, plates: u16) -> Result<Vec<Stores>, String> {
        let shared = SharedDir::open(dir)?;
        Ok((0..plates).map(|plate| shared.stores(PlateId(plate))).collect())
    }

    /// Lets the metadata store be opened only while `check` says that it may be: opening takes it from its holder.
    pub fn guard(&mut self, check: impl Fn() -> Result<(), StoreError> + Send + Sync + 'static) {
        let no_store: OpenMeta = Box::new(|| unreachable!("replaced at once"));
        let open = std::mem::replace(&mut self.open_meta, no_store);
        self.open_meta = Box::new(move || {
            check()?;
            let store = open()?;
            // Somebody may have come in between: then nothing is to be written through it.
            check()?;
            Ok(store)
        });
    }

    /// Those of all plates.
    pub(crate) fn open_all(
        data: &DataAddress,
        plates: u16,
        metastore: FjallOptions,
    ) -> Result<Vec<Stores>, StartError> {
        match data {
            DataAddress::Dir(dir) => Stores::local(dir, plates, metastore).map_err(StartError::Failed),
            DataAddress::S3(location) => {
                let bucket = Bucket::open(location).map_err(StartError::Failed)?;
                Ok((0..plates).map(|plate| bucket.stores(PlateId(plate))).collect())
            }
        }
    }

    /// The segments of a plate's journal alone, to look at: nothing is written for it, so it does on a full disk, too.
    ///
    /// # Errors
    /// [`StartError::Failed`].
    pub fn open_journal(data: &DataAddress, plate: PlateId) -> Result<Arc<dyn Place>, StartError> {
        match data {
            DataAddress::Dir(dir) => journal_of(&plate_dir(dir, plate)).map_err(StartError::Failed),
            DataAddress::S3(_) => Ok(Stores::open(data, plate)?.place),
        }
    }

    /// Has journal and metadata store live on the reserve where the disk has no space.
    pub(crate) fn live_on(&mut self, reserve: &Arc<Reserve>) {
        self.place = Arc::new(ReservedPlace { place: self.place.clone(), reserve: reserve.clone() });
        let no_store: OpenMeta = Box::new(|| unreachable!("replaced at once"));
        let open = std::mem::replace(&mut self.open_meta, no_store);
        let reserve = reserve.clone();
        self.open_meta = Box::new(move || {
            loop {
                let result = open();
                let had_no_space = match &result {
                    Err(StoreError::NoSpace { .. }) => true,
                    // A background thread of the library that failed while it opened does not say why.
                    Err(StoreError::Io { .. }) => {
                        reserve.room().is_some_and(|room| room.free < OPEN_META_BYTES)
                    }
                    _ => false,
                };
                if !had_no_space || reserve.release(OPEN_META_BYTES) == 0 {
                    return result;
                }
            }
        });
    }

    /// The stores of all plates in a data directory. They share the objects.
    ///
    /// # Errors
    /// In words.
    pub(crate) fn local(dir: &Path, plates: u16, metastore: FjallOptions) -> Result<Vec<Stores>, String> {
        let objects = local_objects(dir)?;
        let of = |plate| Stores::local_of(dir, PlateId(plate), objects.clone(), metastore);
        (0..plates).map(of).collect()
    }

    fn local_of(
        dir: &Path,
        plate: PlateId,
        objects: Arc<dyn Objects>,
        metastore: FjallOptions,
    ) -> Result<Stores, String> {
        let home = plate_dir(dir, plate);
        let place = journal_of(&home)?;
        let meta = home.join("meta");
        let total = reserve::room(dir).map_or(u64::MAX, |room| room.total);
        let metastore = FjallOptions {
            unsettled_bytes: reserve::unsettled_bytes(total),
            table_bytes: reserve::table_bytes(total).min(metastore.table_bytes),
            ..metastore
        };
        let open_meta = move || -> Result<Arc<dyn Metastore>, StoreError> {
            // Only a format makes one: in the empty mount point of a disk that is not mounted, the library would begin anew.
            if !meta.is_dir() {
                let cause = "the directory is missing; mount its disk again".to_owned();
                return Err(StoreError::Io { path: meta.clone(), cause });
            }
            Ok(Arc::new(FjallMetastore::open(&meta, metastore)?))
        };
        Ok(Stores {
            objects,
            open_meta: Box::new(open_meta),
            place,
            objects_address: format!("local:{}", dir.join("objects").display()),
        })
    }
}

/// A directory that several servers share.
struct SharedDir {
    blocks: Arc<dyn Objects>,
    /// Objects of journals and rows.
    stores: Arc<dyn Objects>,
    root: PathBuf,
    address: String,
}

impl SharedDir {
    fn open(dir: &Path) -> Result<SharedDir, String> {
        let root = dir.join(STORES_FOLDER);
        let stores = LocalObjects::open(&root).map_err(|e| e.to_string())?;
        let address = format!("local:{}", dir.join("objects").display());
        Ok(SharedDir { blocks: local_objects(dir)?, stores: Arc::new(stores), root, address })
    }

    fn stores(&self, plate: PlateId) -> Stores {
        let below = |name: &str| below(plate, name);
        let place = ObjectPlace::new(self.stores.clone(), &below("journal"));
        let (root, prefix) = (self.root.clone(), below("meta"));
        let open_meta = move || -> Result<Arc<dyn Metastore>, StoreError> {
            let store = SlateMetastore::open_in(&root, &prefix, SlateOptions::default());
            Ok(Arc::new(store?))
        };
        Stores {
            objects: self.blocks.clone(),
            open_meta: Box::new(open_meta),
            place: Arc::new(place),
            objects_address: self.address.clone(),
        }
    }
}

/// The prefix of the objects of a plate, for its journal or its rows.
pub(crate) fn below(plate: PlateId, name: &str) -> String {
    match plate {
        PlateId(0) => name.to_owned(),
        PlateId(n) => format!("{PLATES_FOLDER}/{n}/{name}"),
    }
}

/// Where the journal and the rows of a plate are in a data directory.
pub(crate) fn plate_dir(dir: &Path, plate: PlateId) -> PathBuf {
    match plate {
        PlateId(0) => dir.to_owned(),
        PlateId(n) => dir.join(PLATES_FOLDER).join(n.to_string()),
    }
}

fn local_objects(dir: &Path) -> Result<Arc<dyn Objects>, String> {
    Ok(Arc::new(LocalObjects::open(&dir.join("objects")).map_err(|e| e.to_string())?))
}

fn journal_of(dir: &Path) -> Result<Arc<dyn Place>, String> {
    Ok(Arc::new(FilePlace::open(&dir.join("journal")).map_err(|e| e.to_string())?))
}

/// The metadata store as it is opened now.
pub(crate) struct Meta {
    open: OpenMeta,
    now: RwLock<Arc<dyn Metastore>>,
    /// It could not be opened anew: nobody has it.
    is_closed: AtomicBool,
    /// Nobody closes it any more.
    is_left: AtomicBool,
    /// Snapshots that readers hold. They go before the store is opened anew.
    pub(crate) views: Mutex<Vec<View>>,
}

impl Meta {
    pub(crate) fn open(open: OpenMeta) -> Result<Meta, StoreError> {
        let now = RwLock::new(open()?);
        let (is_closed, is_left) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Meta { open, now, is_closed, is_left, views: Mutex::default() })
    }

    pub(crate) fn get(&self) -> Arc<dyn Metastore> {
        self.now.read().clone()
    }

    /// Has nobody close the store, from here on: its place is gone, and a close would try to reach it for long. For a process
    /// that ends.
    pub(crate) fn leave(&self) {
        self.is_closed.store(true, Relaxed);
        self.is_left.store(true, Relaxed);
        std::mem::forget(self.get());
    }

    pub(crate) fn close(&self) -> Result<(), StoreError> {
        if self.is_left.load(Relaxed) {
            return Ok(());
        }
        self.views.lock().clear();
        self.get().close()
    }

    /// Opens the store anew, after it failed.
    pub(crate) fn reopen(&self) -> Result<(), StoreError> {
        self.views.lock().clear();
        let mut now = self.now.write();
        // It may be beyond closing; only the opening counts.
        let _ = now.close();
        let opened = (self.open)();
        self.is_closed.store(opened.is_err(), Relaxed);
        *now = opened?;
        Ok(())
    }

    /// Opening it anew failed the last time.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Relaxed)
    }
}

/// Rows for the namespace.
pub(crate) struct Source<'a>(pub(crate) &'a dyn Metastore);

impl RowSource for Source<'_> {
    type Error = StoreError;

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.0.get(key)
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.0.get_many(keys)
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Rows, StoreError> {
        self.0.scan(Bound::Included(start), Some(end), limit)
    }
}
