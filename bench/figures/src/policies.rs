//! The policies under which figures are measured: presets, and files of `examples/policies/figures`.

use chiton_policy::preset;

macro_rules! files {
    ($($name:literal)*) => {
        /// Those that are no presets: name and text.
        const FILES: &[(&str, &str)] = &[$(
            ($name, include_str!(concat!("../../../examples/policies/figures/", $name, ".yml"))),
        )*];
    };
}

files! { "posix-durable" "weak-global" "offline" "interfere-allow" "interfere-block" "sync"
"huge-never" "huge-threshold" "huge-always" "huge-auto" }

/// The text of a policy by name.
pub(crate) fn text(name: &str) -> Option<&'static str> {
    let file = FILES.iter().find(|(file, _)| *file == name).map(|(_, text)| *text);
    file.or_else(|| preset(name).map(|preset| preset.text))
}

/// `sync.yml` with this interval in seconds, 0 for never.
pub(crate) fn synced_every(interval: f64) -> String {
    let span = if interval > 0.0 { format!("{}ms", (interval * 1000.0) as u64) } else { "0".to_owned() };
    let text = text("sync").expect("it is in the list");
    text.replace("sync_interval: 1s", &format!("sync_interval: {span}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use chiton_policy::{Policy, PolicyFile, Span, Support};

    fn resolved(text: &str) -> Policy {
        let file = PolicyFile::parse(text).expect(text);
        let policy = Policy::resolve(&file, &Policy::default()).expect(text);
        Support::LOCAL.check(&file, &policy).expect(text);
        policy
    }

    #[test]
    fn each_preset_is_a_supported_policy_with_a_description() {
        for (name, text) in FILES {
            resolved(text);
            assert!(text.starts_with("# ") && text.contains("\n# Figure "), "{name}: {text}");
        }
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/policies/figures");
        let mut there: Vec<String> = std::fs::read_dir(dir)
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
            .collect();
        let mut known: Vec<String> = FILES.iter().map(|(name, _)| format!("{name}.yml")).collect();
        there.sort();
        known.sort();
        assert_eq!(there, known);
    }

    #[test]
    fn intervals_are_put_in_the_file() {
        let interval = |seconds| resolved(&synced_every(seconds)).sync_interval;
        assert_eq!(interval(0.0), None);
        assert_eq!(interval(0.2), Some(Span::from_ms(200)));
        assert_eq!(interval(25.0), Some(Span::from_ms(25_000)));
    }
}
