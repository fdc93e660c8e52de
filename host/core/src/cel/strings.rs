//! Decides what the functions on strings that Kubernetes adds to CEL make of their arguments.

use super::value::{EACH, Text};
use super::{Error, List, Outcome, Value, made, no_overload};
use crate::budget::Budget;

/// Applies one of these functions; `None` if it is none, or has other arguments.
pub(super) fn apply<'v>(name: &str, arguments: &[Value<'v>], budget: &mut Budget) -> Option<Outcome<'v>> {
    let done = match (name, arguments) {
        ("join", [Value::List(list)]) => joined(list, "", budget),
        ("join", [Value::List(list), Value::Text(between)]) => joined(list, between, budget),
        ("split", [Value::Text(text), Value::Text(at)]) => split(text, at, budget),
        ("replace", [Value::Text(text), Value::Text(old), Value::Text(new)]) => replaced(text, old, new, budget),
        ("lowerAscii" | "upperAscii" | "trim", [Value::Text(text)]) => changed(name, text, budget),
        _ => return None,
    };
    Some(done)
}

fn text<'v>(text: String) -> Value<'v> {
    Value::Text(Text::Made(text.into()))
}

fn joined<'v>(list: &List<'v>, between: &str, budget: &mut Budget) -> Outcome<'v> {
    let mut all = String::new();
    for index in 0..list.len() {
        let item = list.get(index).unwrap_or(Value::Null);
        let Value::Text(item) = &item else {
            return Err(no_overload("join", &[Value::List(list.clone()), item]));
        };
        let between = if index == 0 { "" } else { between };
        budget.step(1)?;
        budget.text(between.len() + item.len())?;
        budget.make(between.len() + item.len())?;
        all.extend([between, item]);
    }
    Ok(text(all))
}

/// Splits a text; into its characters, if that at which it is split is empty.
fn split<'v>(whole: &str, at: &str, budget: &mut Budget) -> Outcome<'v> {
    budget.text(whole.len())?;
    let mut parts = Vec::new();
    let mut add = |part: &str| -> Result<(), Error> {
        budget.step(1)?;
        budget.make(EACH + part.len())?;
        parts.push(text(part.to_owned()));
        Ok(())
    };
    if at.is_empty() {
        whole.char_indices().try_for_each(|(begin, c)| add(&whole[begin..begin + c.len_utf8()]))?;
    } else {
        whole.split(at).try_for_each(&mut add)?;
    }
    Ok(made(parts))
}

fn replaced<'v>(whole: &str, old: &str, new: &str, budget: &mut Budget) -> Outcome<'v> {
    budget.text(whole.len())?;
    // What it comes to is paid for before it is made.
    let times = whole.matches(old).count();
    let comes_to = whole.len().saturating_add(times.saturating_mul(new.len()));
    budget.text(comes_to)?;
    budget.make(comes_to)?;
    Ok(text(whole.replace(old, new)))
}

fn changed<'v>(name: &str, whole: &str, budget: &mut Budget) -> Outcome<'v> {
    budget.text(whole.len())?;
    budget.make(whole.len())?;
    Ok(text(match name {
        "lowerAscii" => whole.to_ascii_lowercase(),
        "upperAscii" => whole.to_ascii_uppercase(),
        _ => whole.trim().to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use crate::budget::Budget;
    use crate::cel::Expression;

    fn evaluated(text: &str, budget: &mut Budget) -> Result<bool, String> {
        let spec: Json = json!({ "names": ["a", "b"], "n": [1], "text": "a, b", "long": "a".repeat(1000) });
        let expression = Expression::parse(text, &["spec"]).map_err(|broken| broken.message)?;
        expression.holds(&[("spec", &spec)], budget).map_err(|failure| failure.to_string())
    }

    #[test]
    fn strings_are_joined_split_and_changed_as_kubernetes_does() {
        for text in [
            "spec.names.join(',') == 'a,b'",
            "spec.names.join() == 'ab'",
            "[].join(',') == ''",
            "spec.names.map(n, n + '@x').join(' ') == 'a@x b@x'",
            "spec.text.split(', ') == ['a', 'b']",
            "spec.text.split('x') == ['a, b']",
            "'äb'.split('') == ['ä', 'b']",
            "''.split('') == []",
            "spec.text.replace(', ', '-') == 'a-b'",
            "'ab'.replace('', '-') == '-a-b-'",
            "'ÄaB'.lowerAscii() == 'Äab' && 'äaB'.upperAscii() == 'äAB'",
            "'  a b\\n'.trim() == 'a b'",
        ] {
            assert_eq!(evaluated(text, &mut Budget::of_run()), Ok(true), "{text}");
        }
        for (text, problem) in [
            ("spec.n.join(',') == ''", "join can't be applied to list and int"),
            ("spec.text.join(',') == ''", "join can't be applied to string and string"),
            ("spec.names.split(',') == []", "split can't be applied to list and string"),
            ("spec.text.replace('a') == ''", "replace can't be applied to string and string"),
        ] {
            let found = evaluated(text, &mut Budget::of_run()).unwrap_err();
            assert!(found.contains(problem), "{text}: {found}");
        }
    }

    #[test]
    fn what_would_be_long_is_paid_for_before_it_is_made() {
        for text in [
            "spec.long.replace('', spec.long).replace('', spec.long).replace('', spec.long) == ''",
            "spec.long.split('').map(a, spec.long.split('').map(b, spec.long).join()).join() == ''",
        ] {
            let found = evaluated(text, &mut Budget::of_run()).unwrap_err();
            assert!(found.contains("too expensive"), "{text}: {found}");
        }
    }

    #[test]
    fn what_an_expression_makes_for_itself_is_bounded_in_memory_however_few_steps_it_takes() {
        let doubled = |text: &str, times: usize| {
            let all = vec![text; times].join(" + ");
            format!("size([{}]) == 0", vec![all; 20].join(", "))
        };
        let numbers: Vec<u32> = (0..40_000).collect();
        let spec = json!({ "long": "a".repeat(500_000), "numbers": numbers });
        for text in [doubled("spec.long", 3), doubled("spec.numbers", 2), doubled("bytes(spec.long)", 3)] {
            let expression = Expression::parse(&text, &["spec"]).unwrap();
            let found = expression.holds(&[("spec", &spec)], &mut Budget::of_run()).unwrap_err().to_string();
            assert!(found.contains("it takes more than 16777216 bytes of memory"), "{found}");
        }
        // What one operation has dropped is nothing that the next one has to bear.
        let once = Expression::parse("size(spec.long + spec.long) > 0", &["spec"]).unwrap();
        let mut budget = Budget::of_run();
        for _ in 0..40 {
            assert_eq!(once.holds(&[("spec", &spec)], &mut budget), Ok(true));
        }
    }
}
