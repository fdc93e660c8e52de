//! CEL expressions: compiles one, if it is short and flat enough and knows the variables and functions that it names.

use ::cel::Program;
use ::cel::common::ast::{EntryExpr, Expr, IdedExpr};

use crate::cel;
use crate::yaml::{Broken, either, similar, with_room};

/// The most characters of an expression, and levels of its tree: a list in a list has two, `a + b + c` three. Evaluating
/// one recurses once for each level, on the stack of a task.
const LONGEST: usize = 4096;
const DEEPEST: usize = 24;

/// Compiles an expression over `variables`. What is returned can be evaluated on any stack.
///
/// # Errors
/// [`Broken`] if it cannot be compiled, is too long or too deep, or names another variable.
pub fn compile(text: &str, variables: &[&str]) -> Result<Program, Broken> {
    let broken = |message: String| Broken { offset: 0, message };
    if text.chars().count() > LONGEST {
        return Err(broken(format!("an expression has at most {LONGEST} characters")));
    }
    let compiled = with_room(|| compile_here(text, variables));
    compiled.unwrap_or_else(|| Err(broken("the compiler gave up".to_owned())))
}

fn compile_here(text: &str, variables: &[&str]) -> Result<Program, Broken> {
    let program = Program::compile(text).map_err(|errors| {
        let first = errors.errors.first();
        let offset = first.map_or(0, |error| offset(text, error.pos.0, error.pos.1));
        let message = first.map_or_else(|| errors.to_string(), |error| error.msg.clone());
        let message = match message.trim_start_matches("Syntax error: ") {
            // The one message that is not made for people.
            nested if nested.contains("Recursion limit") => "its brackets are too deep",
            message => message,
        };
        Broken { offset, message: format!("not a CEL expression: {message}") }
    })?;
    if depth(program.expression()) > DEEPEST {
        let message = format!("an expression is at most {DEEPEST} levels deep");
        return Err(Broken { offset: 0, message });
    }
    if let Some((id, name)) = unknown_function(program.expression()) {
        return Err(Broken { offset: start(&program, id), message: format!("unknown function `{name}`") });
    }
    let mut unknown = Vec::new();
    names(program.expression(), &mut Vec::new(), &mut |id, name| {
        if !variables.contains(&name) && !cel::is_type(name) {
            unknown.push((id, name.to_owned()));
        }
    });
    let Some((id, name)) = unknown.into_iter().next() else {
        return Ok(program);
    };
    let known = either(variables);
    let message = match similar(&name, variables) {
        Some(near) => {
            format!("unknown variable `{name}`, did you mean `{near}`? Known are {known}")
        }
        None => format!("unknown variable `{name}`; known are {known}"),
    };
    Err(Broken { offset: start(&program, id), message })
}

/// Returns where a node begins, in characters.
fn start(program: &Program, id: u64) -> usize {
    let offsets = program.source_info().offset_for(id);
    offsets.map_or(0, |(start, _)| usize::try_from(start).unwrap_or(0))
}

/// Returns those of `variables` that an expression reads.
pub fn variables<'n>(program: &Program, variables: &[&'n str]) -> Vec<&'n str> {
    let mut used = Vec::new();
    names(program.expression(), &mut Vec::new(), &mut |_, name| {
        used.push(name.to_owned());
    });
    let read = variables.iter().copied();
    read.filter(|name| used.iter().any(|used| used == name)).collect()
}

/// Returns a function that nothing can evaluate, if an expression calls one.
fn unknown_function(node: &IdedExpr) -> Option<(u64, String)> {
    let name = match &node.expr {
        Expr::Call(call) if !cel::is_function(&call.func_name) => Some(call.func_name.clone()),
        Expr::Struct(new) => Some(new.type_name.clone()),
        Expr::List(list) if !list.optional_indices.is_empty() => Some("?".to_owned()),
        Expr::Call(_)
        | Expr::Comprehension(_)
        | Expr::Ident(_)
        | Expr::List(_)
        | Expr::Literal(_)
        | Expr::Map(_)
        | Expr::Select(_)
        | Expr::Unspecified => None,
    };
    name.map(|name| (node.id, name)).or_else(|| children(node).into_iter().find_map(unknown_function))
}

/// Returns the number of characters before a line and column, both from 1.
fn offset(text: &str, line: isize, column: isize) -> usize {
    let number = |n: isize| usize::try_from(n).unwrap_or(1).saturating_sub(1);
    let lines = text.split_inclusive('\n').take(number(line));
    let before: usize = lines.map(|line| line.chars().count()).sum();
    (before + number(column)).min(text.chars().count())
}

/// Returns the nodes right below a node.
fn children(node: &IdedExpr) -> Vec<&IdedExpr> {
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

fn depth(node: &IdedExpr) -> usize {
    1 + children(node).into_iter().map(depth).max().unwrap_or(0)
}

/// Calls `found` with every variable that no comprehension around it binds.
fn names<'e>(node: &'e IdedExpr, bound: &mut Vec<&'e str>, found: &mut dyn FnMut(u64, &'e str)) {
    match &node.expr {
        Expr::Ident(name) => {
            if !name.starts_with('@') && !bound.contains(&name.as_str()) {
                found(node.id, name);
            }
        }
        Expr::Comprehension(all) => {
            names(&all.iter_range, bound, found);
            names(&all.accu_init, bound, found);
            let outside = bound.len();
            bound.extend([all.iter_var.as_str(), all.accu_var.as_str()]);
            bound.extend(all.iter_var2.as_deref());
            for inner in [&all.loop_cond, &all.loop_step, &all.result] {
                names(inner, bound, found);
            }
            bound.truncate(outside);
        }
        Expr::Call(_)
        | Expr::List(_)
        | Expr::Literal(_)
        | Expr::Map(_)
        | Expr::Select(_)
        | Expr::Struct(_)
        | Expr::Unspecified => {
            for child in children(node) {
                names(child, bound, found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;

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
            assert_eq!(compile(text, &VARIABLES).map(drop), Ok(()), "{text}");
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
            let broken = compile(text, &VARIABLES).map(drop).unwrap_err();
            assert_eq!(broken.offset, offset, "{text}");
            assert!(broken.message.starts_with(&format!("unknown variable `{name}`")), "{}", broken.message);
        }
    }

    #[test]
    fn an_expression_that_no_stack_could_bear_is_refused() {
        for (opening, inner, closing) in [
            ("(", "1", ")"),
            ("[", "1", "]"),
            ("{1:", "1", "}"),
            ("size(", "1", ")"),
            ("[1].map(x,", "1", ")"),
            ("true ? 1 : ", "1", ""),
            ("", "primary", "[0]"),
            ("", "primary", ".a"),
            ("", "1", "+1"),
        ] {
            for times in [30, 300, 100_000 / (opening.len() + closing.len())] {
                let text = format!("{}{inner}{}", opening.repeat(times), closing.repeat(times));
                // Brackets alone are no level of the tree.
                let refused = compile(&text, &VARIABLES).is_err();
                assert!(refused || (opening == "(" && times == 30), "{opening}…{closing} {times} times");
            }
        }
    }

    #[test]
    fn what_is_accepted_can_be_evaluated_on_the_stack_of_a_task() {
        for (opening, inner, closing) in
            [("[", "1", "]"), ("{1:", "1", "}"), ("[1].map(x,", "1", ")"), ("", "1", "+1"), ("", "{}", "[0]")]
        {
            let texts = (0..30).map(|n| format!("{}{inner}{}", opening.repeat(n), closing.repeat(n)));
            let programs: Vec<Program> = texts.map_while(|text| compile(&text, &[]).ok()).collect();
            assert!(programs.len() > 3, "{opening}…{closing}");
            // The first is the innermost alone. Others may be errors, such as an index into nothing.
            let ran: Vec<bool> = programs
                .iter()
                .map(|one| cel::evaluate(one.expression(), &[], &mut Budget::of_run()).is_ok())
                .collect();
            assert!(ran.first().is_some_and(|first| *first), "{opening}…{closing}");
        }
    }
}
