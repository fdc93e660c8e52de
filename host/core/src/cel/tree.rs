//! Walks through the tree of an expression.

use ::cel::common::ast::{EntryExpr, Expr, IdedExpr};

/// Returns the nodes right below a node.
pub(super) fn children(node: &IdedExpr) -> Vec<&IdedExpr> {
    fn entry(entry: &EntryExpr) -> [Option<&IdedExpr>; 2] {
        match entry {
            EntryExpr::StructField(field) => [Some(&field.value), None],
            EntryExpr::MapEntry(entry) => [Some(&entry.key), Some(&entry.value)],
        }
    }
    match &node.expr {
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => Vec::new(),
        Expr::Select(select) => vec![&select.operand],
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|one| entry(&one.expr)).flatten().collect(),
        Expr::Struct(new) => new.entries.iter().flat_map(|one| entry(&one.expr)).flatten().collect(),
        Expr::Comprehension(all) => {
            vec![&all.iter_range, &all.accu_init, &all.loop_cond, &all.loop_step, &all.result]
        }
    }
}

/// Returns the levels of a tree, with that of the node itself.
pub(super) fn depth(node: &IdedExpr) -> usize {
    1 + children(node).into_iter().map(depth).max().unwrap_or(0)
}

/// Returns how many nodes a tree has.
pub(super) fn count(node: &IdedExpr) -> usize {
    1 + children(node).into_iter().map(count).sum::<usize>()
}
