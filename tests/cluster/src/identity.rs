//! Decides who may talk to the API server: its certificate authority, its keys, and its users with their tokens.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The user that may do everything.
pub const ADMIN: &str = "admin";
/// A user of every control plane that has only the rights that a test binds to it.
pub const VISITOR: &str = "visitor";

/// The group that RBAC lets do everything.
const MASTERS: &str = "system:masters";

/// A user of the API server with a bearer token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The name that RBAC and the audit log know.
    pub name: String,
    /// The bearer token.
    pub token: String,
    /// The groups, on top of `system:authenticated`.
    pub groups: Vec<String>,
}

impl User {
    /// Returns a user with a random token and in no group: it has no rights until a role is bound to it.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn new(name: impl Into<String>) -> Result<Self> {
        Ok(Self { name: name.into(), token: chance(16)?, groups: Vec::new() })
    }

    /// Returns the user with one more group.
    pub fn in_group(mut self, group: impl Into<String>) -> Self {
        self.groups.push(group.into());
        self
    }

    /// Returns a user that RBAC lets do everything.
    pub(crate) fn master(name: &str) -> Result<Self> {
        Ok(Self::new(name)?.in_group(MASTERS))
    }

    /// Returns the user's name as a valid file name.
    pub(crate) fn file_stem(&self) -> String {
        self.name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '.' { c } else { '_' }).collect()
    }

    /// Returns the line of the API server's token file.
    fn token_line(&self) -> Result<String> {
        let parts = [&self.name, &self.token].into_iter().chain(&self.groups);
        if let Some(part) = parts.into_iter().find(|part| part.is_empty() || part.contains(['"', ',', '\n'])) {
            bail!("user {:?}: {part:?} can't be in a token file", self.name);
        }
        Ok(format!("{},{},{},\"{}\"\n", self.token, self.name, self.name, self.groups.join(",")))
    }
}

/// The files of a control plane's identity.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) ca: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) service_account_key: PathBuf,
    /// The public half of the key: the API server doesn't read it from a file in PKCS 8.
    pub(crate) service_account_public_key: PathBuf,
    pub(crate) tokens: PathBuf,
}

impl Identity {
    /// Makes the keys and writes the files.
    pub(crate) fn write(folder: &Path, users: &[User]) -> Result<Self> {
        let authority_key = KeyPair::generate()?;
        let authority = authority()?;
        let ca = authority.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(authority, authority_key);
        let key = KeyPair::generate()?;
        let certificate = server()?.signed_by(&key, &issuer)?.pem();
        let accounts = KeyPair::generate()?;
        let lines = users.iter().map(User::token_line).collect::<Result<Vec<_>>>()?;

        let put = |name: &str, text: &str| -> Result<PathBuf> {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
            Ok(path)
        };
        Ok(Self {
            ca: put("ca.pem", &ca)?,
            certificate: put("apiserver.pem", &certificate)?,
            key: put("apiserver.key", &key.serialize_pem())?,
            service_account_key: put("service-accounts.key", &accounts.serialize_pem())?,
            service_account_public_key: put("service-accounts.pub", &accounts.public_key_pem())?,
            tokens: put("tokens.csv", &lines.concat())?,
        })
    }
}

/// Returns a kubeconfig for `user`. It is written as JSON, which is YAML too.
pub(crate) fn kubeconfig(url: &str, ca: &Path, user: &User) -> String {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "capstan", "cluster": { "server": url, "certificate-authority": ca } }],
        "users": [{ "name": user.name, "user": { "token": user.token } }],
        "contexts": [{ "name": "capstan", "context": { "cluster": "capstan", "user": user.name } }],
        "current-context": "capstan",
    });
    format!("{config:#}\n")
}

/// Returns `bytes` random bytes in hexadecimal.
pub(crate) fn chance(bytes: usize) -> Result<String> {
    let mut buffer = vec![0; bytes];
    SystemRandom::new().fill(&mut buffer).map_err(|_| anyhow!("the system has no random numbers"))?;
    Ok(crate::hex(&buffer))
}

fn authority() -> Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "capstan test authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    Ok(params)
}

fn server() -> Result<CertificateParams> {
    let names = ["127.0.0.1", "localhost", "kubernetes.default", "kubernetes.default.svc"];
    let mut params = CertificateParams::new(names.map(str::to_owned))?;
    params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, groups: &[&str]) -> User {
        User {
            name: name.to_owned(),
            token: "t0".to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        }
    }

    #[test]
    fn a_token_line_has_token_name_id_and_groups() {
        let lines = [user("ann", &[]), user("ben", &["a", "b"])].map(|user| user.token_line().unwrap());
        assert_eq!(lines, ["t0,ann,ann,\"\"\n", "t0,ben,ben,\"a,b\"\n"]);
    }

    #[test]
    fn what_would_break_the_token_file_is_refused() {
        let users = [user("", &[]), user("a,b", &[]), user("a", &["\"x"]), user("a\nb", &[])];
        let accepted: Vec<_> = users.iter().filter(|user| user.token_line().is_ok()).collect();
        assert_eq!(accepted, Vec::<&User>::new());
    }

    #[test]
    fn two_users_never_share_a_token() {
        assert_ne!(User::new("a").unwrap().token, User::new("a").unwrap().token);
    }

    #[test]
    fn a_service_account_has_a_file_name_without_colons() {
        assert_eq!(user("system:serviceaccount:a-1:b.c", &[]).file_stem(), "system_serviceaccount_a-1_b.c");
    }
}
