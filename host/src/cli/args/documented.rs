//! Whether each command line of `capstan` that is written down anywhere is one: in documents, in what the chart says, and in the examples of `--help`.

use std::fs;
use std::path::Path;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use ignore::WalkBuilder;

use super::Cli;

/// A piece of a command line.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Word(String),
    /// Another command begins, or one ends.
    Break,
    /// The next word is a file that a command reads or writes.
    Redirect,
}

/// Splits a line as a shell does, as far as documents make use of that.
fn pieces(line: &str) -> Vec<Piece> {
    let (mut pieces, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let end = |word: &mut Option<String>, pieces: &mut Vec<Piece>| pieces.extend(word.take().map(Piece::Word));
    for c in line.chars() {
        match (quote, c) {
            (Some(open), _) if open == c => quote = None,
            (None, '\'' | '"') => {
                word.get_or_insert_default();
                quote = Some(c);
            }
            (None, '#') if word.is_none() => break,
            (None, ' ' | '\t') => end(&mut word, &mut pieces),
            (None, '|' | ';' | '&' | '(' | ')') => {
                end(&mut word, &mut pieces);
                pieces.push(Piece::Break);
            }
            (None, '<' | '>') => {
                // The number of what is redirected is no word.
                word = word.filter(|word| word.parse::<u8>().is_err());
                end(&mut word, &mut pieces);
                pieces.push(Piece::Redirect);
            }
            _ => word.get_or_insert_default().push(c),
        }
    }
    end(&mut word, &mut pieces);
    pieces
}

/// Returns the arguments of each call of `capstan` in a line.
fn calls(line: &str) -> Vec<Vec<String>> {
    let (mut commands, mut is_file) = (vec![Vec::new()], false);
    for piece in pieces(line) {
        is_file = match piece {
            Piece::Break => {
                commands.push(Vec::new());
                false
            }
            Piece::Redirect => true,
            Piece::Word(word) => {
                // What is left out stands for anything.
                if !is_file && word != "…" {
                    commands.last_mut().unwrap().push(word);
                }
                false
            }
        };
    }
    commands.iter().filter_map(|words| called(words)).collect()
}

/// Returns the arguments if a command is a call of `capstan`: after variables, or in a pod.
fn called(words: &[String]) -> Option<Vec<String>> {
    let is_program = |word: &String| word == "capstan" || word.ends_with("/capstan");
    let is_before = |word: &String| word.contains('=') || word == "exec";
    let first = words.iter().position(|word| !is_before(word)).filter(|at| is_program(&words[*at]));
    let in_pod = || words.windows(2).position(|pair| pair[0] == "--" && is_program(&pair[1])).map(|at| at + 1);
    let at = first.or_else(in_pod)?;
    Some(words[at + 1..].to_vec())
}

/// Returns what is wrong with a call. Where it is only `named`, it may lack what it needs.
fn wrong(arguments: &[String], named: bool) -> Option<String> {
    let error = Cli::try_parse_from(std::iter::once("capstan").chain(arguments.iter().map(String::as_str))).err()?;
    // A variable, or what the reader has to fill in, is no value yet.
    let is_open =
        arguments.iter().any(|word| word.contains(['$', '…']) || word.chars().any(|c| c.is_ascii_uppercase()));
    let is = |kinds: &[ErrorKind]| kinds.contains(&error.kind());
    let is_asked = is(&[ErrorKind::DisplayHelp, ErrorKind::DisplayVersion]);
    let is_unknown = is(&[ErrorKind::UnknownArgument, ErrorKind::InvalidSubcommand]);
    let is_filled_in = is_open && is(&[ErrorKind::ValueValidation, ErrorKind::InvalidValue]);
    let is_wrong = is_unknown || !(is_asked || is_filled_in || named);
    is_wrong.then(|| error.to_string())
}

/// Returns a text of the chart with something in place of what Helm fills in.
fn filled(text: &str) -> String {
    let rest = |part: &str| part.split_once("}}").map_or_else(String::new, |(_, rest)| format!("x{rest}"));
    let mut parts = text.split("{{");
    parts.next().unwrap_or_default().to_owned() + &parts.map(rest).collect::<String>()
}

/// Returns the lines of a document's fences for a shell, each with those that it goes on in; and what it has in backquotes elsewhere.
fn written(document: &str) -> (Vec<String>, Vec<String>) {
    let (mut lines, mut named) = (Vec::new(), Vec::new());
    for (number, part) in document.split("```").enumerate() {
        if number % 2 == 0 {
            named.extend(part.split('`').skip(1).step_by(2).map(|span| span.replace('\n', " ")));
        } else if let Some(script) = part.strip_prefix("sh\n") {
            lines.extend(script.replace("\\\n", " ").lines().map(str::to_owned));
        }
    }
    (lines, named)
}

#[test]
fn each_command_line_of_the_documents_is_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let is_ours = |name: &str| !["target", "node_modules", "adr", "CHANGELOG.md"].contains(&name);
    let mut walk = WalkBuilder::new(root);
    walk.filter_entry(move |entry| entry.file_name().to_str().is_some_and(is_ours));
    let (mut seen, mut found) = (0, Vec::new());
    for entry in walk.build().map(Result::unwrap) {
        let path = entry.path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let is_document = path.extension().is_some_and(|end| end == "md");
        if !path.is_file() || !(is_document || name == "NOTES.txt") {
            continue;
        }
        let text = fs::read_to_string(path).unwrap();
        let (lines, named) =
            if is_document { written(&text) } else { (filled(&text).lines().map(str::to_owned).collect(), Vec::new()) };
        let all = lines.iter().map(|line| (line, false)).chain(named.iter().map(|line| (line, true)));
        for (line, named) in all {
            for arguments in calls(line) {
                seen += 1;
                found.extend(wrong(&arguments, named).map(|why| format!("{}: {line}\n{why}", path.display())));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(seen > 200, "{seen} command lines were found");
}

#[test]
fn each_example_of_the_help_is_a_command_line() {
    let (mut seen, mut found) = (0, Vec::new());
    let mut commands = vec![Cli::command()];
    while let Some(command) = commands.pop() {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let examples = help.lines().filter(|line| line.starts_with("  "));
        for example in examples.filter_map(|line| line.trim().split("   ").next()) {
            for arguments in calls(example) {
                seen += 1;
                found.extend(wrong(&arguments, false).map(|why| format!("{}: {example}\n{why}", command.get_name())));
            }
        }
        commands.extend(command.get_subcommands().cloned());
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(seen > 50, "{seen} examples were found");
}

#[test]
fn calls_are_found_in_lines_as_a_shell_finds_them() {
    for (line, expected) in [
        ("capstan check -m a.yaml   # what is wrong?", &["check -m a.yaml"][..]),
        ("A=1 B='x y' capstan run -m \"a b\" >>log 2>&1 &", &["run -m a b"]),
        ("helm install capstan charts/capstan -n capstan", &[]),
        ("kubectl -n capstan exec deploy/capstan -- /capstan plugins", &["plugins"]),
        ("IMAGE=$(capstan push a.wasm r.io/a:1) && capstan sign $IMAGE", &["push a.wasm r.io/a:1", "sign $IMAGE"]),
        ("source <(capstan completions bash)", &["completions bash"]),
        ("capstan init --lang rust|python …", &["init --lang rust"]),
    ] {
        let found: Vec<_> = calls(line).iter().map(|words| words.join(" ")).collect();
        assert_eq!(found, expected, "{line}");
    }
    let run = |line: &str, named| calls(line).iter().find_map(|arguments| wrong(arguments, named)).is_some();
    assert!(run("capstan plugins --adress x", true) && run("capstan chekc", true) && run("capstan check", false));
    assert!(!run("capstan check", true) && !run("capstan push a.wasm $REGISTRY/a:1", false));
}
