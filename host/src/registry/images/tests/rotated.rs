//! What an operator has goes on when its pull secret changes, and is nobody else's for that.

use super::*;

/// `user` with another password.
const OTHER: &str = "dXNlcjpvdGhlcg==";

/// Who asks.
fn asks(config: &Arc<str>) -> impl Fn(&Asked) -> Option<Value> + use<> {
    let config = Arc::clone(config);
    move |asked| (&*asked.value.name == "regcred").then(|| Ok(Arc::clone(&config)))
}

fn has_failed(status: &str) -> impl Fn(&Seen) -> bool {
    move |seen| seen.problem.as_ref().is_some_and(|problem| problem.message.contains(status))
}

/// Has an operator pull `a:1` by its tag and by its digest, as `user` with the password `pass`, and returns its images.
async fn pulled(fake: &Fake, folder: &Path) -> [Key; 2] {
    let pushed = push(fake, "a:1", b"first").await;
    let owner = [":1".to_owned(), format!("@{}", pushed.digest)]
        .map(|name| key("owner", &format!("{}/a{name}", fake.address), Some("regcred")));
    let images = images(folder);
    images.want(owner.clone(), asks(&config(fake)));
    for key in &owner {
        assert_eq!(images.component(key).await, b"first");
    }
    owner
}

#[tokio::test]
async fn what_an_operator_has_starts_without_the_registry_though_its_pull_secret_has_changed_and_nobody_else_has_it() {
    // OC-7, OC-8
    let (fake, folder) = (Fake::start(Door::Open).await, tempfile::tempdir().unwrap());
    let owner = pulled(&fake, folder.path()).await;
    let thieves: [Key; 2] = owner.clone().map(|(_, image)| ("thief".into(), image));
    let anonymous = owner.clone().map(|(name, image)| (name, Image { pull_secret: None, ..image }));
    fake.fails(|_| Some(text(503, "")));
    let others = || thieves.iter().chain(&anonymous);
    {
        let images = images(folder.path());
        images.want(owner.iter().chain(others()).cloned(), asks(&config_of(&fake, OTHER)));
        for key in &owner {
            assert_eq!(images.component(key).await, b"first");
            images.until(key, "failed", has_failed("(503)")).await;
        }
        for key in others() {
            assert_eq!(images.until(key, "failed", has_failed("(503)")).await.known, None, "{key:?}");
        }
    }
    // A registry that says no is believed, before anything is in force.
    for status in [401, 403] {
        fake.fails(move |_| Some(text(status, "")));
        let images = images(folder.path());
        images.want(owner.clone(), asks(&config_of(&fake, OTHER)));
        for key in &owner {
            let seen = images.until(key, "refused", has_failed(&format!("({status})"))).await;
            assert_eq!((seen.known, seen.problem.unwrap().kind), (None, Kind::Denied), "{key:?}");
        }
    }
}

#[tokio::test]
async fn a_pull_secret_that_changes_has_nothing_pulled_again_and_gives_others_no_right() {
    // OC-7, OC-8
    let (fake, folder) = (Fake::start(Door::Open).await, tempfile::tempdir().unwrap());
    let owner = pulled(&fake, folder.path()).await;
    let pulls = || fake.asked().into_iter().filter(|asked| asked.line.starts_with("GET /v2/a/blobs/")).count();
    pulls();
    let other = config_of(&fake, OTHER);
    {
        let images = images(folder.path());
        images.want(owner.clone(), asks(&config(&fake)));
        for key in &owner {
            images.component(key).await;
        }
        let before = owner.each_ref().map(|key| images.seen(&key.0, &key.1).unwrap().checked);
        // As the daemon reads it again.
        images.want(owner.clone(), asks(&other));
        // The question about the tag that was under way may still be answered.
        for (key, mut before) in owner.iter().zip(before).chain([(&owner[0], None)]) {
            if before.is_none() {
                before = images.seen(&key.0, &key.1).unwrap().checked;
            }
            images.until(key, "asked", |seen| seen.checked != before && seen.problem.is_none()).await;
        }
        assert_eq!(pulls(), 0);
    }
    // The registry has named it to these credentials: it goes on whatever is said later.
    fake.fails(|_| Some(text(403, "")));
    let images = images(folder.path());
    images.want(owner.clone(), asks(&other));
    for key in &owner {
        assert_eq!(images.component(key).await, b"first");
    }
    // Another operator is given it by the registry alone.
    fake.mends();
    let friend: Key = ("friend".into(), owner[0].1.clone());
    images.want(owner.iter().cloned().chain([friend.clone()]), asks(&other));
    assert_eq!(images.component(&friend).await, b"first");
    assert_eq!(pulls(), 1);
}
