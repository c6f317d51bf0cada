//! Other plates and a decoupled subtree: nothing comes in from them, nothing goes out to them.

use std::sync::Arc;

use chiton_client::Client;
use chiton_types::{Attr, Ino, PlateId, Plates, Refusal};

use crate::site::{IN_MEMORY, ON_DISK, Party, Site, merge};

/// Lets others work in the subtree.
const OPEN: &str = "consistency: weak\ndurability: local\ninterfere_policy: allow\n";

fn plate_of(ino: Ino) -> PlateId {
    let plates = Plates::new(chiton_types::SHARDS_DEFAULT, 4).expect("a plate has shards");
    plates.of(ino).expect("there is such a shard")
}

/// A directory of another plate than this one, at the path that it has.
fn elsewhere(client: &Client, than: PlateId) -> (String, Attr) {
    let made = (0..).map(|n| {
        let path = format!("/far{n}");
        let attr = client.mkdir_all(&path).expect("made");
        (path, attr)
    });
    made.into_iter().find(|(_, attr)| plate_of(attr.ino) != than).expect("there is one")
}

fn link(client: &Client, from: &str, dir: &str, name: &str) -> Result<(), Refusal> {
    let (ino, dir) = (client.stat(from).expect("there").ino, client.stat(dir).expect("there").ino);
    client.link(&client.caller(), ino, dir, name.as_bytes()).map(drop)
}

#[test]
fn nothing_comes_from_other_plates_or_goes_there_while_a_subtree_is_decoupled() {
    let site = Site::new();
    let (ours, others) = (site.connected(), site.elsewhere());
    let client = &others.client;
    // No policy draws a border around it.
    let root = client.mkdir_all("/job").expect("made").ino;
    for n in 0.. {
        let path = format!("/job/{n}");
        if plate_of(client.mkdir_all(&path).expect("made").ino) == plate_of(root) {
            client.rename_path(&path, "/job/old").expect("renamed");
            break;
        }
        client.remove(&path).expect("removed");
    }
    client.create_file("/job/file", b"f").expect("made");
    let (far, _) = elsewhere(client, plate_of(root));
    client.mkdir_all(format!("{far}/dir")).expect("made");
    client.create_file(format!("{far}/file"), b"far").expect("made");
    let check = |expected: Result<(), Refusal>, moved: Result<(), Refusal>| {
        let moves = [("/job/file", "/out"), ("/job/old", "/out"), ("/file", "/job/in"), ("/dir", "/job/in")];
        for (from, to) in moves {
            let at =
                |path: &str| if path.starts_with("/job") { path.to_owned() } else { format!("{far}{path}") };
            assert_eq!(client.rename_path(at(from), at(to)), expected, "{from} to {to}");
            if expected.is_ok() {
                client.rename_path(at(to), at(from)).expect("moved back");
            }
        }
        assert_eq!(client.rename_path("/job", format!("{far}/job")), moved);
    };
    let realm = ours.decouple(root, OPEN).expect("decoupled");
    check(Err(Refusal::CrossDevice), Err(Refusal::Busy));
    for (from, dir) in [("/job/file".to_owned(), far.clone()), (format!("{far}/file"), "/job".to_owned())] {
        assert_eq!(link(client, &from, &dir, "linked"), Err(Refusal::CrossDevice), "{from} in {dir}");
    }
    assert!(client.remove("/job").is_err(), "its client has it");
    // Directories of others are born where the subtree is.
    for n in 0..8 {
        let made = client.mkdir_all(format!("/job/old/new{n}")).expect("made");
        assert_eq!(plate_of(made.ino), plate_of(root));
    }
    realm.client().create_file("/ours", b"o").expect("made");
    realm.client().mkdir_all("/a/b/c").expect("made");
    merge(&realm);
    drop(realm);
    assert_eq!(client.read_file("/job/ours"), Ok(b"o".to_vec()));
    assert_eq!(plate_of(client.stat("/job/a/b/c").expect("merged").ino), plate_of(root));
    check(Ok(()), Ok(()));
    client.rename_path(format!("{far}/job"), "/job").expect("moved back");
    site.restart();
    assert_eq!(site.connected().client.read_file("/job/ours"), Ok(b"o".to_vec()));
}

/// The answer that a subtree cannot be decoupled because its rows lie on several plates, or names of its files outside.
fn is_refused(party: &Party, root: Ino) {
    let error = party.decouple(root, OPEN).map(drop).expect_err("refused");
    assert_eq!(error.refusal(), Refusal::CrossDevice, "{error}");
    assert!(error.to_string().contains("placement: near"), "{error}");
}

#[test]
fn a_subtree_on_several_plates_is_not_decoupled_until_it_lies_on_one() {
    let site = Site::new();
    let ours = site.connected();
    let client = &ours.client;
    // Born without a policy, on many plates.
    let root = client.mkdir_all("/spread").expect("made").ino;
    let dirs: Vec<Attr> = (0..8).map(|n| client.mkdir_all(format!("/spread/d{n}")).expect("made")).collect();
    assert!(dirs.iter().any(|dir| plate_of(dir.ino) != plate_of(root)));
    is_refused(&ours, root);
    for n in 0..8 {
        client.remove(format!("/spread/d{n}")).expect("removed");
    }
    let (far, _) = elsewhere(client, plate_of(root));
    client.create_file("/spread/file", b"f").expect("made");
    link(client, "/spread/file", &far, "linked").expect("linked");
    is_refused(&ours, root);
    client.remove(format!("{far}/linked")).expect("removed");
    let realm = ours.decouple(root, OPEN).expect("decoupled");
    realm.client().mkdir_all("/deep/er").expect("made");
    merge(&realm);
    assert_eq!(plate_of(client.stat("/spread/deep/er").expect("merged").ino), plate_of(root));
}

#[test]
fn decouplings_of_all_plates_are_listed_and_have_numbers_of_their_own() {
    let site = Site::new();
    let (ours, others) = (site.connected(), site.elsewhere());
    let realms: Vec<_> = (0..12)
        .map(|n| {
            let root = ours.mkdir(&format!("/job{n}")).ino;
            let policy = [ON_DISK, IN_MEMORY][n % 2];
            (root, ours.decouple(root, policy).expect("decoupled"))
        })
        .collect();
    assert!(realms.iter().any(|(root, _)| plate_of(*root) != plate_of(realms[0].0)));
    let listed = chiton_decoupled::decouplings(&others.client).expect("listed");
    for (n, (root, realm)) in realms.iter().enumerate() {
        let of: Vec<_> = listed.iter().filter(|info| info.claim.realm == realm.claim().realm).collect();
        assert_eq!(of.len(), 1, "the number of {n} is its own");
        assert_eq!((of[0].root, of[0].path.as_slice()), (*root, format!("/job{n}").as_bytes()));
        // Others are kept out, and may list what is around.
        assert_eq!(others.client.create_file(format!("/job{n}/f"), b"").map(drop), Err(Refusal::Busy));
    }
    assert_eq!(others.client.list("/").expect("listed").len(), 12);
    let _: Vec<Arc<_>> =
        realms.into_iter().map(|(_, realm)| realm).inspect(|realm| drop(merge(realm))).collect();
    assert!(chiton_decoupled::decouplings(&others.client).expect("listed").is_empty());
}

/// The path of a decoupled directory is that of now, also where directories of other plates above it have moved.
#[test]
fn paths_of_decouplings_follow_moves_above_them() {
    let site = Site::new();
    let (ours, others) = (site.connected(), site.elsewhere());
    let (mut moved, mut kept) = (0, 0);
    for n in 0..24 {
        // Born without a policy, on many plates.
        let above = ours.client.mkdir_all(format!("/above{n}")).expect("made").ino;
        let root = ours.client.mkdir_all(format!("/above{n}/job")).expect("made").ino;
        let realm = ours.decouple(root, ON_DISK).expect("decoupled");
        let is_moved = match others.client.rename_path(format!("/above{n}"), format!("/moved{n}")) {
            Ok(()) => true,
            Err(refusal) => {
                assert_eq!(refusal, Refusal::Busy);
                false
            }
        };
        // A directory above it on its own plate stays where it is.
        assert_eq!(is_moved, plate_of(above) != plate_of(root));
        let path = if is_moved { format!("/moved{n}/job") } else { format!("/above{n}/job") };
        let listed = chiton_decoupled::decouplings(&others.client).expect("listed");
        let shown: Vec<_> =
            listed.iter().map(|info| String::from_utf8_lossy(&info.path).into_owned()).collect();
        assert_eq!(shown, [path]);
        merge(&realm);
        *(if is_moved { &mut moved } else { &mut kept }) += 1;
    }
    assert!(moved > 0 && kept > 0, "{moved} moved, {kept} kept");
}
