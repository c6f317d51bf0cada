//! The profile files of the usual tools: `~/.aws/credentials` and `~/.aws/config`.
//!
//! ```text
//!   [profile work]
//!   region = eu-central-1
//!   endpoint_url = https://s3.example.org
//!   s3 =
//!     addressing_style = virtual          becomes s3.addressing_style
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;

/// The settings of a profile by name.
pub(crate) type Profile = BTreeMap<String, String>;

/// The profile named by `AWS_PROFILE` (`default` without it), of both files; empty if there is none.
///
/// # Errors
/// In words, if `AWS_PROFILE` names one that neither file has.
pub(crate) fn load(var: &dyn Fn(&str) -> Option<String>) -> Result<Profile, String> {
    let named = var("AWS_PROFILE").or_else(|| var("AWS_DEFAULT_PROFILE"));
    let name = named.as_deref().unwrap_or("default");
    let home = var("HOME").map(PathBuf::from);
    let path = |variable: &str, file: &str| {
        var(variable).map(PathBuf::from).or_else(|| Some(home.as_ref()?.join(".aws").join(file)))
    };
    let text = |path: Option<PathBuf>| path.and_then(|p| std::fs::read_to_string(p).ok()).unwrap_or_default();
    let config = text(path("AWS_CONFIG_FILE", "config"));
    let credentials = text(path("AWS_SHARED_CREDENTIALS_FILE", "credentials"));
    let heading = if name == "default" { "default".to_owned() } else { format!("profile {name}") };
    let (of_config, of_credentials) = (section(&config, &heading), section(&credentials, name));
    if named.is_some() && of_config.is_none() && of_credentials.is_none() {
        return Err(format!(
            "AWS_PROFILE names {name:?}, which is neither in the config nor the credentials file below ~/.aws: add it there, or \
             name another"
        ));
    }
    let mut profile = of_config.unwrap_or_default();
    if let Some(services) = profile.get("services")
        && let Some(services) = section(&config, &format!("services {services}"))
    {
        profile.extend(services);
    }
    profile.extend(of_credentials.unwrap_or_default());
    Ok(profile)
}

/// The settings under `[heading]`; none if there is no such heading.
fn section(text: &str, heading: &str) -> Option<Profile> {
    let mut found: Option<Profile> = None;
    let mut is_ours = false;
    let mut group = String::new();
    for line in text.lines() {
        let words = line.trim();
        if words.is_empty() || words.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = words.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            is_ours = name.split_whitespace().eq(heading.split_whitespace());
            if is_ours {
                found.get_or_insert_default();
            }
            continue;
        }
        let (Some(profile), true) = (&mut found, is_ours) else { continue };
        let Some((name, value)) = words.split_once('=') else { continue };
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
        let is_nested = line.starts_with([' ', '\t']) && !group.is_empty();
        if !is_nested {
            group = if value.is_empty() { format!("{name}.") } else { String::new() };
        }
        if !value.is_empty() {
            profile.insert(if is_nested { format!("{group}{name}") } else { name }, value.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "\
# ours
[default]
region = us-west-1
[profile  work]
region=eu-central-1
s3 =
  addressing_style = virtual
  max_queue_size = 3
output = json
services = lab
[services lab]
s3 =
    endpoint_url = http://lab:9000
";

    #[test]
    fn profiles_of_both_files_go_together() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join(".aws")).expect("made");
        std::fs::write(dir.path().join(".aws/config"), CONFIG).expect("written");
        let keys = "[work]\naws_access_key_id = AK\naws_secret_access_key = a=b+/=\n";
        std::fs::write(dir.path().join("keys"), keys).expect("written");
        let var = |profile: Option<&'static str>| {
            let dir = dir.path().to_owned();
            move |name: &str| match name {
                "HOME" => Some(dir.display().to_string()),
                "AWS_SHARED_CREDENTIALS_FILE" => Some(dir.join("keys").display().to_string()),
                "AWS_PROFILE" => profile.map(str::to_owned),
                _ => None,
            }
        };
        let work = load(&var(Some("work"))).expect("loads");
        let get = |name: &str| work.get(name).map(String::as_str);
        assert_eq!(get("region"), Some("eu-central-1"));
        assert_eq!(get("s3.addressing_style"), Some("virtual"));
        assert_eq!(get("s3.endpoint_url"), Some("http://lab:9000"));
        assert_eq!(get("output"), Some("json"));
        assert_eq!(get("aws_secret_access_key"), Some("a=b+/="));
        assert_eq!(load(&var(None)).expect("loads").get("region").map(String::as_str), Some("us-west-1"));
        assert!(load(&var(Some("none"))).expect_err("refused").contains("none"));
    }
}
