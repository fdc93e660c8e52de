//! CEL expressions: whether one can be compiled, and knows the variables that it names.

use cel::Program;
use cel::common::ast::{EntryExpr, Expr, IdedExpr};

use super::problem::{Broken, either, similar};

/// The names of CEL's own types, which stand in expressions as variables do.
const TYPES: [&str; 12] = [
    "bool", "bytes", "double", "duration", "dyn", "int", "list", "map", "null_type", "string", "timestamp", "uint",
];

/// Checks an expression over `variables`.
///
/// # Errors
/// [`Broken`] if it cannot be compiled, or names another variable.
pub(super) fn check(text: &str, variables: &[&str]) -> Result<(), Broken> {
    let program = Program::compile(text).map_err(|errors| {
        let first = errors.errors.first();
        let offset = first.map_or(0, |error| offset(text, error.pos.0, error.pos.1));
        let message = first.map_or_else(|| errors.to_string(), |error| error.msg.clone());
        Broken { offset, message: format!("not a CEL expression: {}", message.trim_start_matches("Syntax error: ")) }
    })?;
    let mut unknown = Vec::new();
    names(program.expression(), &mut Vec::new(), &mut |id, name| {
        if !variables.contains(&name) && !TYPES.contains(&name) {
            unknown.push((id, name.to_owned()));
        }
    });
    let Some((id, name)) = unknown.into_iter().next() else { return Ok(()) };
    let offset = program.source_info().offset_for(id).map_or(0, |(start, _)| usize::try_from(start).unwrap_or(0));
    let known = either(variables);
    let message = match similar(&name, variables) {
        Some(near) => format!("unknown variable `{name}`, did you mean `{near}`? Known are {known}"),
        None => format!("unknown variable `{name}`; known are {known}"),
    };
    Err(Broken { offset, message })
}

/// Returns the number of characters before a line and column, both from 1.
fn offset(text: &str, line: isize, column: isize) -> usize {
    let number = |n: isize| usize::try_from(n).unwrap_or(1).saturating_sub(1);
    let before: usize = text.split_inclusive('\n').take(number(line)).map(|line| line.chars().count()).sum();
    (before + number(column)).min(text.chars().count())
}

/// Calls `found` with every variable that no comprehension around it binds.
fn names<'e>(node: &'e IdedExpr, bound: &mut Vec<&'e str>, found: &mut dyn FnMut(u64, &'e str)) {
    match &node.expr {
        Expr::Ident(name) => {
            if !name.starts_with('@') && !bound.contains(&name.as_str()) {
                found(node.id, name);
            }
        }
        Expr::Select(select) => names(&select.operand, bound, found),
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).for_each(|e| names(e, bound, found)),
        Expr::List(list) => list.elements.iter().for_each(|e| names(e, bound, found)),
        Expr::Map(map) => entries(map.entries.iter().map(|entry| &entry.expr), bound, found),
        Expr::Struct(fields) => entries(fields.entries.iter().map(|entry| &entry.expr), bound, found),
        Expr::Comprehension(comprehension) => {
            names(&comprehension.iter_range, bound, found);
            names(&comprehension.accu_init, bound, found);
            let outside = bound.len();
            bound.extend([comprehension.iter_var.as_str(), comprehension.accu_var.as_str()]);
            bound.extend(comprehension.iter_var2.as_deref());
            names(&comprehension.loop_cond, bound, found);
            names(&comprehension.loop_step, bound, found);
            names(&comprehension.result, bound, found);
            bound.truncate(outside);
        }
        Expr::Literal(_) | Expr::Unspecified => {}
    }
}

fn entries<'e>(
    entries: impl Iterator<Item = &'e EntryExpr>,
    bound: &mut Vec<&'e str>,
    found: &mut dyn FnMut(u64, &'e str),
) {
    for entry in entries {
        match entry {
            EntryExpr::StructField(field) => names(&field.value, bound, found),
            EntryExpr::MapEntry(entry) => {
                names(&entry.key, bound, found);
                names(&entry.value, bound, found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VARIABLES: [&str; 2] = ["primary", "dependent"];

    #[test]
    fn what_comprehensions_bind_and_names_of_types_are_known() {
        for text in [
            "primary.spec.exposed",
            "has(primary.spec.domain) && dependent == null",
            "primary.spec.hosts.all(h, h.startsWith('a'))",
            "primary.spec.hosts.map(h, primary.spec.ports.filter(p, p > size(h)))",
            "type(primary.spec.n) == int",
            "{'a': primary.metadata.name}['a'] in [dependent.metadata.name]",
        ] {
            assert_eq!(check(text, &VARIABLES), Ok(()), "{text}");
        }
    }

    #[test]
    fn an_unknown_variable_is_found_where_it_stands() {
        for (text, offset, name) in [
            ("primry.spec.exposed", 0, "primry"),
            ("primary.spec.exposed && h", 24, "h"),
            ("[1].all(x, x > 0) && x", 21, "x"),
            ("{'a': b}", 6, "b"),
        ] {
            let broken = check(text, &VARIABLES).unwrap_err();
            assert_eq!(broken.offset, offset, "{text}");
            assert!(broken.message.starts_with(&format!("unknown variable `{name}`")), "{}", broken.message);
        }
    }
}
