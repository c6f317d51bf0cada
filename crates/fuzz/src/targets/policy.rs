//! Policy files and compositions as administrators type them.

use chiton_policy::{PRESETS, Place, PolicyFile, parse_composition};

use super::{Target, as_it_is};

pub(super) const POLICY: Target = Target { name: "policy", run, seeds, repair: as_it_is, short_run: 3_000 };

fn run(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let file = PolicyFile::parse(&text).is_ok();
    parse_composition(&text, Place::START).is_ok() || file
}

fn seeds() -> Vec<Vec<u8>> {
    let compositions =
        ["rpcs", "append_client_journal+local_persist||volatile_apply", "rpcs+(stream||local_persist)"];
    let presets = PRESETS.iter().map(|preset| preset.text);
    presets.chain(compositions).map(|text| text.as_bytes().to_vec()).collect()
}
