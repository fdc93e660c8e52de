//! Says what the types are, for `capstan crd`.

fn main() {
    capstan_guest::types::print(&[capstan_guest::types::said::<operator::{{kind}}>()]);
}
