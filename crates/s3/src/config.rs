//! How to reach a bucket: from the environment and the profile files, as the usual tools do.
//!
//! Invariants:
//! - The environment goes before the profile. `AWS_ENDPOINT_URL_S3` goes before `AWS_ENDPOINT_URL`.
//! - Unencrypted only if the endpoint begins with `http://`.
//! - Our own client tries nothing again: whether a conditional put may be repeated only we know.

use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{Certificate, ClientOptions, RetryConfig};

use crate::location::S3Location;
use crate::profile::{self, Profile};
use crate::requests::CountingConnector;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum silence of the service.
const SILENCE: Duration = Duration::from_secs(30);
/// Longest request: a block of 16 MiB over a slow line.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// The address and credentials of a service.
#[derive(Clone)]
pub struct S3Config {
    /// `http://…` or `https://…`; none for AWS itself.
    pub endpoint: Option<String>,
    /// The region that requests are signed for.
    pub region: String,
    /// The bucket stands in the host's name, not in the path.
    pub is_virtual: bool,
    /// Access key, secret, session token; none to ask the machine or container that this runs on.
    pub keys: Option<(String, String, Option<String>)>,
    /// A file of certificates that are trusted beside the system's.
    pub ca_bundle: Option<String>,
}

impl S3Config {
    /// From this process's environment and its user's files.
    ///
    /// # Errors
    /// A message, if settings contradict each other or name missing files.
    pub fn load() -> Result<S3Config, String> {
        S3Config::from(&|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn from(var: &dyn Fn(&str) -> Option<String>) -> Result<S3Config, String> {
        let profile = profile::load(var)?;
        let first = |variables: &[&str], settings: &[&str]| -> Option<String> {
            let of_profile = |profile: &Profile| settings.iter().find_map(|name| profile.get(*name).cloned());
            variables.iter().find_map(|name| var(name)).or_else(|| of_profile(&profile))
        };
        let endpoint = first(
            &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"],
            &["s3.endpoint_url", "endpoint_url"],
        );
        if let Some(endpoint) = &endpoint
            && !endpoint.starts_with("http://")
            && !endpoint.starts_with("https://")
        {
            return Err(format!(
                "the endpoint {endpoint:?} (AWS_ENDPOINT_URL, or endpoint_url of the profile) must begin with http:// or https://"
            ));
        }
        let region = first(&["AWS_REGION", "AWS_DEFAULT_REGION"], &["region"]);
        let style = var("AWS_VIRTUAL_HOSTED_STYLE_REQUEST").map(|v| v == "true").or_else(|| {
            Some(profile.get("s3.addressing_style")?).filter(|s| *s != "auto").map(|s| s == "virtual")
        });
        let keys = match (var("AWS_ACCESS_KEY_ID"), var("AWS_SECRET_ACCESS_KEY")) {
            (Some(key), Some(secret)) => Some((key, secret, var("AWS_SESSION_TOKEN"))),
            (None, None) => {
                let get = |name: &str| profile.get(name).cloned();
                get("aws_access_key_id")
                    .zip(get("aws_secret_access_key"))
                    .map(|(key, secret)| (key, secret, get("aws_session_token")))
            }
            (key, _) => {
                let (is_set, lacks) = match key.is_some() {
                    true => ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
                    false => ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"),
                };
                return Err(format!(
                    "{is_set} is set and {lacks} is not: set both, or neither to use a profile"
                ));
            }
        };
        Ok(S3Config {
            is_virtual: style.unwrap_or(endpoint.is_none()),
            region: region.unwrap_or_else(|| "us-east-1".to_owned()),
            endpoint,
            keys,
            ca_bundle: first(&["AWS_CA_BUNDLE"], &["ca_bundle"]),
        })
    }

    /// True if no key was found: the service may still know this machine or container.
    pub(super) fn lacks_keys(&self) -> bool {
        self.keys.is_none()
    }

    /// A client of a bucket that tries again so often.
    pub(super) fn client(&self, location: &S3Location, retries: usize) -> Result<AmazonS3, String> {
        let mut options = ClientOptions::new()
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_read_timeout(SILENCE)
            .with_timeout(REQUEST_TIMEOUT)
            .with_allow_http(self.endpoint.as_ref().is_some_and(|e| e.starts_with("http://")));
        if let Some(path) = &self.ca_bundle {
            let bad = |what: &str, error: &dyn std::fmt::Display| {
                format!(
                    "{what} the CA bundle {path} (AWS_CA_BUNDLE, or ca_bundle of the profile): {error}; name a file of \
                     certificates in PEM form"
                )
            };
            let pem = std::fs::read(path).map_err(|e| bad("cannot read", &e))?;
            let bundle = Certificate::from_pem_bundle(&pem).map_err(|e| bad("cannot use", &e))?;
            options = bundle.into_iter().fold(options, ClientOptions::with_root_certificate);
        }
        // A dot in the name does not fit the certificate of a virtual host.
        let is_virtual = self.is_virtual && (self.endpoint.is_some() || !location.bucket.contains('.'));
        let mut builder = AmazonS3Builder::from_env()
            .with_client_options(options)
            .with_http_connector(CountingConnector)
            .with_retry(RetryConfig { max_retries: retries, ..RetryConfig::default() })
            .with_bucket_name(&location.bucket)
            .with_region(&self.region)
            .with_virtual_hosted_style_request(is_virtual);
        if let Some(endpoint) = &self.endpoint {
            let endpoint = match is_virtual {
                true => virtual_host(endpoint, &location.bucket),
                false => endpoint.clone(),
            };
            builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
        }
        if let Some((key, secret, token)) = &self.keys {
            builder = builder.with_access_key_id(key).with_secret_access_key(secret);
            if let Some(token) = token {
                builder = builder.with_token(token);
            }
        }
        builder
            .build()
            .map_err(|e| format!("cannot use bucket {:?}: {e}; check the AWS_ variables", location.bucket))
    }
}

/// `https://host` becomes `https://bucket.host`, if it does not name the bucket already.
fn virtual_host(endpoint: &str, bucket: &str) -> String {
    let (scheme, host) = endpoint.split_once("://").unwrap_or(("https", endpoint));
    match host.strip_prefix(bucket).is_some_and(|rest| rest.starts_with('.')) {
        true => endpoint.to_owned(),
        false => format!("{scheme}://{bucket}.{host}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(vars: &[(&str, &str)]) -> Result<S3Config, String> {
        let vars: Vec<(String, String)> = vars.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
        S3Config::from(&move |name| vars.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone()))
    }

    #[test]
    fn the_environment_is_understood() {
        let config = found(&[
            ("AWS_ENDPOINT_URL", "http://a"),
            ("AWS_ENDPOINT_URL_S3", "http://b"),
            ("AWS_ACCESS_KEY_ID", "k"),
            ("AWS_SECRET_ACCESS_KEY", "s"),
            ("AWS_DEFAULT_REGION", "r"),
        ])
        .expect("understood");
        assert_eq!((config.endpoint.as_deref(), config.region.as_str()), (Some("http://b"), "r"));
        assert!(!config.is_virtual && !config.lacks_keys());
        let plain = found(&[]).expect("understood");
        assert!(plain.is_virtual && plain.lacks_keys() && plain.endpoint.is_none());
        assert!(found(&[("AWS_ACCESS_KEY_ID", "k")]).is_err());
        assert!(found(&[("AWS_ENDPOINT_URL", "host:9000")]).is_err());
        assert!(found(&[("AWS_PROFILE", "none")]).is_err());
    }

    #[test]
    fn requests_go_where_the_style_and_the_endpoint_say() {
        use object_store::signer::Signer;

        let check = |more: &[(&str, &str)], location: &str, expect: &str| {
            let keys =
                [("AWS_ACCESS_KEY_ID", "k"), ("AWS_SECRET_ACCESS_KEY", "s"), ("AWS_REGION", "eu-west-1")];
            let config = found(&[&keys[..], more].concat()).expect("understood");
            let location: S3Location = location.parse().expect("a location");
            let runtime = chiton_async::runtime();
            let client = runtime.block_on(async { config.client(&location, 0) }).expect("settings fit");
            let path = object_store::path::Path::from("key");
            let url =
                runtime.block_on(client.signed_url(reqwest::Method::GET, &path, SILENCE)).expect("a URL");
            let (place, query) = url.as_str().split_once('?').expect("a signature");
            assert_eq!(place, expect, "{more:?}");
            assert!(query.contains("eu-west-1"), "signed for another region: {query}");
        };
        let endpoint = |url| ("AWS_ENDPOINT_URL", url);
        let virtual_style = ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true");
        check(&[], "s3://bucket", "https://bucket.s3.eu-west-1.amazonaws.com/key");
        check(&[], "s3://my.bucket", "https://s3.eu-west-1.amazonaws.com/my.bucket/key");
        check(&[endpoint("http://h:9000")], "s3://bucket", "http://h:9000/bucket/key");
        check(&[endpoint("https://h:9000")], "s3://bucket", "https://h:9000/bucket/key");
        check(&[endpoint("https://h"), virtual_style], "s3://bucket", "https://bucket.h/key");
    }

    #[test]
    fn certificates_are_read_at_once_and_named_if_they_are_none() {
        let open = |path: &std::path::Path| {
            let config = found(&[("AWS_CA_BUNDLE", path.to_str().expect("text"))]).expect("understood");
            let location: S3Location = "s3://bucket".parse().expect("a location");
            chiton_async::runtime().block_on(async { config.client(&location, 0) }).map(drop)
        };
        let dir = tempfile::tempdir().expect("a directory");
        let missing = dir.path().join("none.pem");
        assert!(open(&missing).is_err_and(|e| e.contains("none.pem")));
        let wrong = dir.path().join("wrong.pem");
        std::fs::write(&wrong, "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n")
            .expect("writes");
        assert!(open(&wrong).is_err_and(|e| e.contains("wrong.pem")));
    }

    #[test]
    fn virtual_hosts_name_the_bucket_once() {
        assert_eq!(virtual_host("https://s3.example.org:9", "b"), "https://b.s3.example.org:9");
        assert_eq!(virtual_host("https://b.s3.example.org", "b"), "https://b.s3.example.org");
    }
}
