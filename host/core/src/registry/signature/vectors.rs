//! Keys, and what cosign itself has signed with them; `vectors/README.md` says how they were made.

/// A key, with its digest as `openssl pkey -pubin -outform der | sha256sum` prints it.
pub(crate) struct Vector {
    pub(crate) key: &'static str,
    pub(crate) digest: &'static str,
}

pub(crate) const P256: Vector = Vector {
    key: include_str!("vectors/p256.pub"),
    digest: "97450e4cba71e88320cecbde5c4e3673ae38a451cef14100974f6746a0cc6ab9",
};

pub(crate) const OTHER: Vector = Vector {
    key: include_str!("vectors/other.pub"),
    digest: "03dbd8ab42b48d7d5873d370c2fb88a768ee23fe3a2bd0670568a0d4e8d67c9c",
};

pub(crate) const ED25519: Vector = Vector {
    key: include_str!("vectors/ed25519.pub"),
    digest: "da9bb2d35750b3fd9cd00395f5e909685137ba9aaee2ca2875999f082cec56c9",
};

pub(crate) const RSA: Vector = Vector {
    key: include_str!("vectors/rsa.pub"),
    digest: "17a9c144ab9940e5c4db75668d10d0f27492e1dd0dffd7e1bb400471413521d5",
};

pub(crate) const P384: &str = "\
-----BEGIN PUBLIC KEY-----
MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAES/dgry1aTcxEkSIkprTD5lp0xuZrqlCQ
OK3+TyQzQIELwbbnMVlSl5mJnU7b9oVGfW8Ybj+C2E+Aqhpb8lYNohL9Jhwg/jGu
cbaup7rGx1BI1qtmLza5FbIuxc9yxg/h
-----END PUBLIC KEY-----
";

pub(crate) const RSA_1024: &str = "\
-----BEGIN PUBLIC KEY-----
MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQClJXmbN1ivnl6hOx04dr1KR7qI
X/rfGT4fhMX9l84bOMara06m9d6iDLhzVk8UIvPsH2kFtTD9PYSMPcRPfD2ALnXg
u7eanwwweRXd+FRIc0ybae5GoVfPuP18TAwpWnNpTraIA3XRhMT8+AdssN/BmTZi
Dob5tBlZiHJVuCPWPQIDAQAB
-----END PUBLIC KEY-----
";

pub(crate) const X25519: &str = "\
-----BEGIN PUBLIC KEY-----
MCowBQYDK2VuAyEANeOZDWpCriraJ08J2kMd4+IdgIj+UXHZ/RkTC9Pl4zc=
-----END PUBLIC KEY-----
";

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::{ED25519, OTHER, P256, RSA};
    use crate::registry::referrers;

    const MANIFEST: &[u8] = include_bytes!("vectors/manifest.json");

    /// What the registry has under `sha256-DIGEST`, and what that leads to, with the key that has signed.
    const LIST: &[u8] = include_bytes!("vectors/cosign-3.1.3/referrers.json");
    const BUNDLES: [(&super::Vector, &[u8], &[u8]); 3] = [
        (
            &P256,
            include_bytes!("vectors/cosign-3.1.3/referrer-p256.json"),
            include_bytes!("vectors/cosign-3.1.3/bundle-p256.json"),
        ),
        (
            &RSA,
            include_bytes!("vectors/cosign-3.1.3/referrer-rsa.json"),
            include_bytes!("vectors/cosign-3.1.3/bundle-rsa.json"),
        ),
        (
            &ED25519,
            include_bytes!("vectors/cosign-3.1.3/referrer-ed25519.json"),
            include_bytes!("vectors/cosign-3.1.3/bundle-ed25519.json"),
        ),
    ];

    /// What it has under `sha256-DIGEST.sig`, whose layers were signed by these keys, one after the other.
    const SIGNATURES: &[u8] = include_bytes!("vectors/cosign-3.1.3/signatures.json");
    const PAYLOAD: &[u8] = include_bytes!("vectors/cosign-3.1.3/payload.json");
    const SIGNERS: [&super::Vector; 3] = [&P256, &ED25519, &RSA];

    fn keys() -> Vec<Key> {
        [OTHER, P256, ED25519, RSA].iter().map(|vector| Key::parse(vector.key).unwrap()).collect()
    }

    #[test]
    fn what_cosign_3_writes_is_good_for_the_manifest_that_it_has_signed_and_for_no_other() {
        // SG-2, SG-5
        let (keys, digest, other) = (keys(), Digest::sha256(MANIFEST), Digest::sha256(b"other"));
        let (listed, more) = referrers::listed(LIST).unwrap();
        let signed_by: Vec<_> = BUNDLES.iter().map(|(_, referrer, _)| Digest::sha256(referrer)).collect();
        assert_eq!((listed, more), (signed_by, 0));
        for (vector, referrer, bundle) in BUNDLES {
            let (parts, _) = referrers::parts(referrer);
            assert_eq!(parts[0].descriptor.digest, Digest::sha256(bundle));
            let document = Document::Bundle(bundle.to_vec());
            let subject = Subject { digest: &digest, manifest: MANIFEST };
            let found = document.verify(subject, keys[..1].iter()).unwrap_err();
            assert!(found.starts_with("by another key, as it says sha256:"), "{found}");
            let signed = document.verify(subject, keys.iter());
            if vector.digest == ED25519.digest {
                // cosign signs otherwise with such a key than anybody else.
                let found = signed.unwrap_err();
                assert!(found.contains("or is Ed25519ph, which cosign makes of such a key"), "{found}");
                continue;
            }
            let signed = signed.unwrap();
            assert_eq!((signed.key.hex(), signed.name), (vector.digest, None));
            let found = document.verify(Subject { digest: &other, ..subject }, keys.iter()).unwrap_err();
            assert_eq!(found, format!("of sha256:{}; expected of {other}", digest.hex()));
        }
    }

    #[test]
    fn what_cosign_wrote_before_is_good_for_the_manifest_and_says_of_which_repository_that_is() {
        // SG-2, SG-3, SG-5
        let (keys, digest, other) = (keys(), Digest::sha256(MANIFEST), Digest::sha256(b"other"));
        let (parts, more) = referrers::parts(SIGNATURES);
        assert_eq!((parts.len(), more), (3, 0));
        for (part, vector) in parts.into_iter().zip(SIGNERS) {
            assert_eq!(part.descriptor.digest, Digest::sha256(PAYLOAD));
            let document = Document::Simple { payload: PAYLOAD.to_vec(), signature: part.signature.unwrap() };
            let subject = Subject { digest: &digest, manifest: MANIFEST };
            assert_eq!(document.verify(subject, keys[..1].iter()), Err("by another key".to_owned()));
            if vector.digest == ED25519.digest {
                assert_eq!(document.verify(subject, keys.iter()), Err("by another key".to_owned()));
                continue;
            }
            let signed = document.verify(subject, keys.iter()).unwrap();
            let name = Some("127.0.0.1:5055/team/webpage");
            assert_eq!((signed.key.hex(), signed.name.as_deref()), (vector.digest, name));
            let found = document.verify(Subject { digest: &other, ..subject }, keys.iter()).unwrap_err();
            assert_eq!(found, format!("of {digest}; expected of {other}"));
        }
    }
}
