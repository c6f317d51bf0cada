//! Policies that ship: the systems of the papers, each a commented file in `examples/policies`.

/// A policy by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    pub name: &'static str,
    /// Content of the policy file, as YAML.
    pub text: &'static str,
}

macro_rules! presets {
    ($($name:literal)*) => {
        /// All, strongest consistency first.
        pub const PRESETS: &[Preset] = &[$(Preset {
            name: $name,
            text: include_str!(concat!("../../../examples/policies/", $name, ".yml")),
        },)*];
    };
}

presets! { "posix" "indexfs" "calvinfs" "hdfs" "ramdisk" "batchfs" "deltafs" "ramdisk-decoupled" }

impl Preset {
    /// The first comment of the file.
    pub fn summary(&self) -> &'static str {
        self.text.lines().next().unwrap_or_default().trim_start_matches(['#', ' '])
    }
}

/// Finds a preset by name; a trailing `.yml` does not matter.
pub fn preset(name: &str) -> Option<&'static Preset> {
    let name = name.strip_suffix(".yml").unwrap_or(name);
    PRESETS.iter().find(|p| p.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::PolicyFile;
    use crate::policy::Policy;
    use crate::values::{Data, Interfere};

    #[test]
    fn presets_are_what_the_papers_say() {
        for (name, composition) in [
            ("posix", "rpcs + stream"),
            ("indexfs", "rpcs + stream"),
            ("calvinfs", "rpcs + replicate"),
            ("hdfs", "rpcs + stream"),
            ("ramdisk", "rpcs"),
            ("batchfs", "append_client_journal + local_persist + volatile_apply"),
            ("deltafs", "append_client_journal + local_persist"),
            ("ramdisk-decoupled", "append_client_journal"),
        ] {
            let preset = preset(name).expect(name);
            assert!(preset.text.starts_with("# "), "{name} begins with what it is");
            let file = PolicyFile::parse(preset.text).unwrap_or_else(|f| panic!("{name}: {f}"));
            // A preset sets all that matters itself: it means the same below any other.
            for around in PRESETS {
                let outer = PolicyFile::parse(around.text).unwrap();
                let outer = Policy::resolve(&outer, &Policy::default()).unwrap();
                let policy = Policy::resolve(&file, &outer).unwrap_or_else(|f| panic!("{name}: {f}"));
                assert_eq!(
                    policy,
                    Policy::resolve(&file, &Policy::default()).unwrap(),
                    "{name} in {}",
                    around.name
                );
                assert_eq!(policy.composition.to_string(), composition, "{name}");
            }
        }
        assert_eq!(PRESETS.len(), 8);
        let policy = |name| {
            Policy::resolve(&PolicyFile::parse(preset(name).unwrap().text).unwrap(), &Policy::default())
                .unwrap()
        };
        assert_eq!(policy("deltafs").allocated_inodes, 100_000);
        assert_eq!(policy("deltafs").interfere, Interfere::Block);
        assert_eq!(policy("hdfs").data, Data::Lazy);
        assert!(preset("posix.yml").is_some() && preset("zfs").is_none());
    }
}
