use super::*;

fn store() -> (tempfile::TempDir, LocalObjects) {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalObjects::open(dir.path()).unwrap();
    (dir, store)
}

fn temporaries(root: &Path) -> usize {
    fs::read_dir(root.join("+tmp")).unwrap().map(|d| fs::read_dir(d.unwrap().path()).unwrap().count()).sum()
}

#[test]
fn leftovers_of_dead_processes_go_and_those_of_living_ones_stay() {
    let (dir, store) = store();
    let living = store.staging.write(b"half a put").unwrap();
    let dead = dir.path().join("+tmp/77");
    fs::create_dir(&dead).unwrap();
    fs::write(dead.join("0"), b"half a put").unwrap();
    let second = LocalObjects::open(dir.path()).unwrap();
    assert!(!dead.exists());
    assert!(living.path.exists());
    second.put("a", b"x").unwrap();
    assert_eq!(second.put_if_absent("a", b"x"), Ok(false));
    assert_eq!(second.put_if_absent("b", b"x"), Ok(true));
    drop(living);
    assert_eq!(temporaries(dir.path()), 0);
    let listed = store.list("", None, 10).unwrap();
    assert_eq!(listed.iter().map(|i| i.key.as_str()).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn an_object_is_never_a_directory_too() {
    let (dir, store) = store();
    store.put("a/b", b"x").unwrap();
    for result in [store.put("a", b"y"), store.put("a/b/c", b"y"), store.put_if_absent("a", b"y").map(|_| ())]
    {
        assert!(matches!(result, Err(ObjectError::BadKey { .. })), "{result:?}");
    }
    assert!(store.get("a", None).unwrap_err().is_not_found());
    assert!(store.size("a/b/c").unwrap_err().is_not_found());
    store.delete("a").unwrap();
    store.delete("a/b/c").unwrap();
    assert_eq!(store.get("a/b", None).unwrap(), b"x");
    assert_eq!(temporaries(dir.path()), 0);
}

#[test]
fn sync_of_few_and_of_many() {
    let (_dir, store) = store();
    for n in 0..3 {
        store.put(&format!("few/{n}"), b"x").unwrap();
    }
    store.delete("few/1").unwrap();
    store.sync().unwrap();
    for n in 0..50 {
        store.put(&format!("many/{n}/x"), b"x").unwrap();
    }
    store.sync().unwrap();
    store.sync().unwrap();
}

#[test]
fn a_failed_sync_stays_failed() {
    let (dir, store) = store();
    store.put("a", b"x").unwrap();
    fs::remove_file(dir.path().join("a")).unwrap();
    std::os::unix::fs::symlink("a", dir.path().join("a")).unwrap();
    store.sync().unwrap_err();
    fs::remove_file(dir.path().join("a")).unwrap();
    let again = store.sync().unwrap_err();
    assert!(again.to_string().contains("an earlier sync failed"), "{again}");
}

#[test]
fn a_full_disk_is_reported_as_full() {
    assert!(matches!(sort_error("k", "write", &Errno::NOSPC.into()), ObjectError::NoSpace { .. }));
    let text = sort_error("k/1", "write", &Errno::IO.into()).to_string();
    assert!(text.contains("k/1") && text.contains("write"), "{text}");
}

/// A store that is gone, or whose disk is not mounted, is not begun anew.
#[test]
fn a_store_that_vanished_is_not_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let (root, elsewhere) = (dir.path().join("objects"), dir.path().join("elsewhere"));
    let store = LocalObjects::open(&root).unwrap();
    store.put("a/b/1", b"x").unwrap();
    std::fs::rename(&root, &elsewhere).unwrap();
    assert!(store.put("c/d/2", b"x").is_err());
    assert!(!root.exists());
    std::fs::rename(&elsewhere, &root).unwrap();
    store.put("c/d/2", b"x").unwrap();
}
