//! Hostile policies end in a fault with a place, never in a panic.

use chiton_policy::{Explanation, Place, Policy, PolicyFile, judge, parse_composition};
use proptest::prelude::*;

fn handled(text: &str) {
    match PolicyFile::parse(text) {
        Ok(file) => {
            if let Ok(policy) = Policy::resolve(&file, &Policy::default()) {
                assert!(judge(policy.composition.clone()).is_ok());
                assert!(!Explanation::of(&policy).to_string().is_empty());
            }
        }
        Err(fault) => {
            assert!(fault.place.line >= 1 && fault.place.column >= 1, "{fault}");
            assert!(!fault.reason.is_empty() && fault.to_string().len() < 1_000, "{fault}");
        }
    }
}

#[test]
fn bombs_are_refused() {
    let bomb: String = (0..20).map(|n| format!("a{n}: &a{n} [*a{p}, *a{p}]\n", p = n.max(1) - 1)).collect();
    handled(&bomb);
    assert!(PolicyFile::parse(&bomb).is_err());
    for nested in ["[", "{a: ", "- ", "? ", "!", "&a ", "\"", "|\n ", "a:\n "] {
        handled(&nested.repeat(5_000));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_text_is_handled(text in "\\PC{0,200}") {
        handled(&text);
    }

    #[test]
    fn texts_like_policies_are_handled(
        lines in prop::collection::vec(
            ("(consistency|durability|composition|data|retain|sync_interval|allocated_inodes|placement|[a-z_]{1,9})",
             "[ :]{1,2}", "[a-z_+|() 0-9:#\\[\\]{}&*!'\"-]{0,40}"), 0..8),
    ) {
        let text: String = lines.iter().map(|(k, c, v)| format!("{k}:{c}{v}\n")).collect();
        handled(&text);
    }

    #[test]
    fn any_composition_is_handled(text in "[a-z_+|() ]{0,80}|(rpcs|create|save|persist|stream|v_apply|[+]|[|]{1,4}|[()]| ){0,20}") {
        if let Ok(composition) = parse_composition(&text, Place::START) {
            match judge(composition) {
                Ok(normal) => prop_assert_eq!(judge(normal.clone()), Ok(normal)),
                Err(senseless) => prop_assert!(judge(senseless.nearest).is_ok()),
            }
        }
    }
}
