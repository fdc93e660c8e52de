//! Has what an informer caches packed in portions, between the events that come (BC).

use std::sync::Arc;

use capstan_core::cache::Writer;
use parking_lot::Mutex;
use tokio::task::yield_now;

use super::Shared;

/// Packs what is cached for as long as somebody wants that. Never ends.
pub(super) async fn pack(shared: Arc<Shared>, writer: Arc<Mutex<Writer>>) {
    loop {
        let due = {
            let mut writer = writer.lock();
            writer.pack(shared.kept.packs());
            writer.is_due()
        };
        if due {
            writer.lock().portion();
            shared.measure(&shared.cache);
            // Events that have come meanwhile are taken in first.
            yield_now().await;
        } else {
            shared.repack.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use capstan_core::object::fields::Fields;
    use capstan_core::object::{Gvk, Managers, Object, Version};
    use futures::poll;
    use tokio::pin;

    use super::super::Need;
    use super::super::pool::tests::shared;
    use super::*;

    #[tokio::test]
    async fn what_is_there_is_packed_in_portions_once_somebody_wants_that() {
        // BC-4
        let mut filled = Writer::default();
        filled.start_list();
        for n in 0..400 {
            let lines = (0..60).map(|i| format!("setting {i} of tenant {n}, ")).collect::<Vec<_>>().concat();
            let text = format!(r#"{{"metadata":{{"name":"m{n}","resourceVersion":"1"}},"data":"{lines}"}}"#);
            let object = Object::parse(&text, &Gvk::parse("v1", "ConfigMap").unwrap(), &Managers::default());
            filled.list_item(object.unwrap());
        }
        filled.finish_list(Version(1));
        let (cache, shared) = (filled.cache(), shared(&filled));
        let (plain, objects) = (cache.bytes(), cache.list());
        let packing = pack(Arc::clone(&shared), Arc::new(Mutex::new(filled)));
        pin!(packing);
        assert!(poll!(&mut packing).is_pending());
        assert_eq!(cache.bytes(), plain, "nobody wants it");
        shared.kept.add(1, &Need { packed: true, ..Need::all(Fields::whole()) });
        shared.repack.notify_one();
        let mut sizes = Vec::new();
        for _ in 0..100 {
            assert!(poll!(&mut packing).is_pending());
            sizes.push(cache.bytes());
        }
        sizes.dedup();
        assert!(sizes.len() > 5 && sizes.is_sorted_by(|a, b| a > b), "others have their turn: {sizes:?}");
        assert!(sizes.last().unwrap() * 2 < plain, "{plain} {sizes:?}");
        assert_eq!(shared.metrics.bytes.get(), i64::try_from(cache.bytes()).unwrap());
        assert_eq!(cache.list(), objects);
    }
}
