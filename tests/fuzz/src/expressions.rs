//! Makes expressions in CEL of bytes, most of which a manifest may have.

use arbitrary::{Result, Unstructured};

/// How deep an expression gets.
const DEPTH: usize = 6;

/// What needs nothing.
const ATOMS: [&str; 18] = [
    "primary",
    "dependent",
    "primary.spec",
    "primary.spec.a",
    "primary.spec.b",
    "dependent.status",
    "primary.metadata.name",
    "x",
    "y",
    "true",
    "null",
    "0",
    "-1",
    "9223372036854775807",
    "2u",
    "1.5",
    "'a'",
    "[]",
];

/// What is put around expressions; each `_` is one.
const SHAPES: [&str; 46] = [
    "(_)",
    "!_",
    "-_",
    "_ && _",
    "_ || _",
    "_ == _",
    "_ != _",
    "_ < _",
    "_ >= _",
    "_ in _",
    "_ + _",
    "_ - _",
    "_ * _",
    "_ / _",
    "_ % _",
    "_ ? _ : _",
    "_[_]",
    "_.a",
    "_.?b",
    "has(_.a)",
    "size(_)",
    "_.size()",
    "[_, _]",
    "{_: _, 'b': _}",
    "_.all(x, _)",
    "_.exists(x, _)",
    "_.exists_one(x, _)",
    "_.filter(y, _)",
    "_.map(x, _)",
    "_.map(x, _, _)",
    "_.contains(_)",
    "_.startsWith(_)",
    "_.endsWith(_)",
    "_.matches(_)",
    "_.matches('(a{0,9}){0,9}$')",
    "string(_)",
    "int(_)",
    "uint(_)",
    "double(_)",
    "bytes(_)",
    "type(_)",
    "dyn(_)",
    "_.split(_)",
    "_.join(_)",
    "_.replace(_, _)",
    "_.lowerAscii()",
];

/// Returns an expression.
pub(crate) fn expression(bytes: &mut Unstructured<'_>) -> Result<String> {
    if bytes.ratio(1, 32)? {
        return bytes.arbitrary();
    }
    below(bytes, DEPTH)
}

fn below(bytes: &mut Unstructured<'_>, depth: usize) -> Result<String> {
    if depth == 0 || bytes.ratio(1, 5)? {
        return Ok((*bytes.choose(&ATOMS)?).to_owned());
    }
    let mut text = String::new();
    for piece in bytes.choose(&SHAPES)?.split_inclusive('_') {
        match piece.strip_suffix('_') {
            Some(before) => {
                text.push_str(before);
                text.push_str(&below(bytes, depth - 1)?);
            }
            None => text.push_str(piece),
        }
    }
    Ok(text)
}
