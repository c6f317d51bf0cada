//! chmod -R and chown -R.

use chiton_model::AttrChange;
use chiton_trees::{Changed, change};
use chiton_types::{Attr, Kind, Mode, Refusal};

use crate::site::{Kept, PLATES, Site, chmod, fill, look, place};

fn mode(bits: impl Fn(&Attr) -> u16) -> impl Fn(&Attr) -> Option<AttrChange> {
    move |attr| {
        let mode = Mode(bits(attr));
        let changes = attr.kind != Kind::Symlink && mode != attr.mode;
        changes.then(|| AttrChange { mode: Some(mode), ..AttrChange::default() })
    }
}

#[test]
fn modes_and_owners_change_everywhere() {
    for plates in PLATES {
        let site = Site::new(plates);
        let client = site.client();
        fill(&client, "/tree", 1_000);
        let root = client.stat("/tree").expect("there").ino;
        client.create_file("/outside", b"x").expect("made");
        client.symlink(&client.caller(), root, b"link", b"/outside").expect("made");
        let outside = client.stat("/outside").expect("there");
        let places = [place(&client, "/tree")];
        let before = client.messages();
        let wanted = mode(|attr| if attr.kind == Kind::Dir { 0o750 } else { 0o640 });
        let done = change(&client, &places, true, "chmod", &wanted, &mut Kept::default());
        assert_eq!(done, Changed { names: 1_012, changed: 1_011, ..Changed::default() });
        assert!(client.messages() - before < 60, "{}", client.messages() - before);
        let again = change(&client, &[place(&client, "/tree")], true, "chmod", &wanted, &mut Kept::default());
        assert_eq!((again.names, again.changed), (1_012, 0), "what is right already is left");
        let owner =
            |attr: &Attr| (attr.uid != 7).then(|| AttrChange { uid: Some(7), ..AttrChange::default() });
        let done = change(&client, &[place(&client, "/tree")], true, "chown", &owner, &mut Kept::default());
        assert_eq!((done.names, done.changed, done.refused), (1_012, 1_012, 0));
        assert_eq!(client.stat("/outside"), Ok(outside), "links are not followed");
        assert_eq!(client.lstat("/tree/link").map(|attr| attr.uid), Ok(7), "and are changed themselves");
        let modes = look(&client, "/tree").into_values().map(|look| (look.is_dir(), look.bits()));
        let is_right = |(is_dir, bits)| bits == if is_dir { 0o750 } else { 0o640 } || bits == 0o777;
        assert!(modes.into_iter().all(is_right));
        let one = change(
            &client,
            &[place(&client, "/tree")],
            false,
            "chmod",
            &mode(|_| 0o700),
            &mut Kept::default(),
        );
        assert_eq!((one.names, one.changed), (1, 1), "not recursive");
    }
}

#[test]
fn owners_may_open_and_close_their_own_trees() {
    for plates in PLATES {
        let site = Site::new(plates);
        let root = site.client();
        fill(&root, "/home/tree", 200);
        let own = |_: &Attr| Some(AttrChange { uid: Some(1000), ..AttrChange::default() });
        change(&root, &[place(&root, "/home/tree")], true, "chown", &own, &mut Kept::default());
        let user = root.acting_as(1000, 1000, &[]);
        let run = |wanted: &dyn Fn(&Attr) -> Option<AttrChange>| {
            let mut kept = Kept::default();
            let done = change(&user, &[place(&user, "/home/tree")], true, "chmod", wanted, &mut kept);
            assert_eq!((kept.refused, done.changed, done.names), (vec![], 203, 203), "{plates} plates");
        };
        run(&mode(|_| 0o000));
        run(&mode(|attr| if attr.kind == Kind::Dir { 0o700 } else { 0o600 }));
    }
}

#[test]
fn files_of_others_are_refused_and_the_rest_is_changed() {
    let site = Site::new(3);
    let root = site.client();
    fill(&root, "/tree", 200);
    chmod(&root, "/tree/many-1", 0o700);
    let own = AttrChange { uid: Some(1000), ..AttrChange::default() };
    root.set_attr_path("/tree/many-0/file-7", own).expect("changed");
    let user = root.acting_as(1000, 1000, &[]);
    let mut kept = Kept::default();
    let done = change(&user, &[place(&user, "/tree")], true, "chmod", &mode(|_| 0o755), &mut kept);
    // /tree and /tree/many-0 have that mode already.
    assert_eq!((done.changed, done.refused, kept.refused.len()), (1, 101, 101));
    assert!(kept.refused.contains(&("/tree/many-0/file-8".to_owned(), "chmod", Refusal::NotPermitted)));
    assert!(kept.refused.contains(&("/tree/many-1".to_owned(), "list", Refusal::Access)));
}
