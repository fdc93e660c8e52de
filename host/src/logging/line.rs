//! Decides how an event is written: as text for people or as a JSON object, with its fields and those of the spans around it, each name
//! once.

use std::fmt::{self, Write as _};

use capstan_core::text;
use serde::Serializer as _;
use serde::ser::SerializeMap as _;
use serde_json::{Map, Number, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::{LookupSpan, Scope};

use super::meter::GUEST;
use super::writer::Form;

/// The longest value of a field in text, in bytes: enough for a whole line that a component prints.
const LONGEST: usize = 8 << 10;

/// The field of a component's line with the fields that it gives: a JSON array of pairs of texts.
const GIVEN: &str = "fields";

/// Writes events. Fields of spans have to be formatted as JSON.
pub struct Lined(pub Form);

/// What is written of an event.
#[derive(Default)]
struct Said {
    message: String,
    /// The daemon's fields, those of spans first.
    fields: Vec<(String, Value)>,
    /// Those that the component gives.
    given: Vec<(String, String)>,
    of_guest: bool,
}

impl<S, N> FormatEvent<S, N> for Lined
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut said = Said { of_guest: event.metadata().target() == GUEST, ..Said::default() };
        for span in context.event_scope().into_iter().flat_map(Scope::from_root) {
            let extensions = span.extensions();
            let fields = extensions.get::<FormattedFields<N>>().map_or("", |fields| &fields.fields);
            for (name, value) in serde_json::from_str::<Map<String, Value>>(fields).unwrap_or_default() {
                said.put(&name, value);
            }
        }
        event.record(&mut said);
        match self.0 {
            Form::Text => said.text(&mut out, event.metadata()),
            Form::Json => said.json(&mut out, event.metadata()),
        }
    }
}

impl Said {
    /// Adds a field, in place of one with the same name.
    fn put(&mut self, name: &str, value: Value) {
        match self.fields.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = value,
            None => self.fields.push((name.to_owned(), value)),
        }
    }

    /// Writes it for people: the message, then fields as `name=value`. Texts of several lines follow, indented: only the daemon's
    /// messages, and what components give, have them.
    fn text(&self, out: &mut Writer<'_>, about: &Metadata<'_>) -> fmt::Result {
        let ansi = out.has_ansi_escapes();
        let [dim, italic, plain] = if ansi { ["\x1b[2m", "\x1b[3m", "\x1b[0m"] } else { [""; 3] };
        out.write_str(dim)?;
        SystemTime.format_time(out)?;
        write!(out, "{plain} ")?;
        if ansi {
            write!(out, "\x1b[{}m{:>5}{plain}", color(*about.level()), about.level().as_str())?;
        } else {
            write!(out, "{:>5}", about.level().as_str())?;
        }
        let mut lines = self.message.lines().take(text::LINES);
        write!(out, " {}", text::said_within(lines.next().unwrap_or_default(), LONGEST))?;
        let mut field = |name: &str, value: &str| {
            let name = quoted(&text::said(name));
            write!(out, " {italic}{name}{plain}{dim}={plain}{}", quoted(&text::said_within(value, LONGEST)))
        };
        for (name, value) in &self.fields {
            match value {
                Value::String(value) => field(name, value)?,
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                    field(name, &value.to_string())?;
                }
            }
        }
        let (long, short): (Vec<_>, Vec<_>) = self.given.iter().partition(|(_, value)| value.contains('\n'));
        for (name, value) in short {
            field(name, value)?;
        }
        out.write_char('\n')?;
        for line in lines {
            writeln!(out, "    {}", text::said_within(line, LONGEST))?;
        }
        for (name, value) in long {
            write!(out, "    {}: ", text::said(name))?;
            for (at, line) in value.lines().take(text::LINES).enumerate() {
                writeln!(out, "{}{}", if at > 0 { "    " } else { "" }, text::said_within(line, LONGEST))?;
            }
        }
        Ok(())
    }

    /// Writes it as a JSON object. What a component gives is an object in there, with an array for a text of several lines.
    fn json(&self, out: &mut Writer<'_>, about: &Metadata<'_>) -> fmt::Result {
        let mut line = Vec::new();
        self.serialize(&mut line, about).map_err(|_| fmt::Error)?;
        writeln!(out, "{}", String::from_utf8_lossy(&line))
    }

    fn serialize(&self, line: &mut Vec<u8>, about: &Metadata<'_>) -> serde_json::Result<()> {
        let mut time = String::new();
        // Writing to a string cannot fail.
        let _infallible = SystemTime.format_time(&mut Writer::new(&mut time));
        let mut serializer = serde_json::Serializer::new(line);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("timestamp", &time)?;
        map.serialize_entry("level", about.level().as_str())?;
        map.serialize_entry("message", &self.message)?;
        let own = self.fields.iter().filter(|(name, _)| !["timestamp", "level", "message"].contains(&name.as_str()));
        for (name, value) in own {
            map.serialize_entry(name, value)?;
        }
        if !self.given.is_empty() {
            let given = self.given.iter().take(text::LINES).map(|(name, value)| {
                // JSON escapes by itself.
                let shown = |line: &str| match line.len() {
                    0..=LONGEST => line.into(),
                    _ => Value::from(text::said_within(line, LONGEST)),
                };
                let value = if value.contains('\n') {
                    value.lines().take(text::LINES).map(shown).collect()
                } else {
                    shown(value)
                };
                (text::said(name).into_owned(), value)
            });
            map.serialize_entry(GIVEN, &given.collect::<Map<_, _>>())?;
        }
        map.end()
    }
}

impl Visit for Said {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            GIVEN if self.of_guest && value.is_empty() => {}
            GIVEN if self.of_guest => match serde_json::from_str(value) {
                Ok(given) => self.given = given,
                Err(_) => self.put(GIVEN, value.into()),
            },
            name => self.put(name, value.into()),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut shown = String::new();
        // Writing to a string cannot fail.
        let _infallible = write!(shown, "{value:?}");
        self.record_str(field, &shown);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field.name(), Number::from_f64(value).map_or(Value::Null, Value::Number));
    }
}

/// Returns a value as it is if that can't be misread, else in quotes.
fn quoted(value: &str) -> String {
    if value.is_empty() || value.contains([' ', '\t', '"', '=']) {
        let end = if value.ends_with('\\') { "\\" } else { "" };
        return format!("\"{}{end}\"", value.replace('"', "\\\""));
    }
    value.to_owned()
}

/// Returns the number of a level's colour.
fn color(level: Level) -> u8 {
    match level {
        Level::ERROR => 31,
        Level::WARN => 33,
        Level::INFO => 32,
        Level::DEBUG => 34,
        Level::TRACE => 35,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tracing_subscriber::fmt::format::JsonFields;

    use super::*;

    /// Returns what is logged meanwhile in this form, without the time.
    pub(crate) fn logged(form: Form, act: impl FnOnce()) -> Vec<String> {
        let bytes: Arc<Mutex<Vec<u8>>> = Arc::default();
        let writer = {
            let bytes = Arc::clone(&bytes);
            move || Bytes(Arc::clone(&bytes))
        };
        let subscriber = tracing_subscriber::fmt().with_writer(writer).with_max_level(Level::TRACE).with_ansi(false);
        let subscriber = subscriber.fmt_fields(JsonFields::new()).event_format(Lined(form));
        tracing::subscriber::with_default(subscriber.finish(), act);
        let text = String::from_utf8(bytes.lock().clone()).unwrap();
        let timeless = |line: &str| match form {
            Form::Text if line.starts_with("    ") => line.to_owned(),
            Form::Text => line.split_once('Z').unwrap().1.trim_start().to_owned(),
            Form::Json => line.split_once("Z\",").unwrap().1.to_owned(),
        };
        text.lines().map(timeless).collect()
    }

    struct Bytes(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Bytes {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn failing() {
        let _outer = tracing::info_span!("controller", controller = "web").entered();
        let _inner = tracing::info_span!("execution", key = "a/b").entered();
        let error = "it is\nno page";
        tracing::warn!(%error, attempt = 2, last = false, key = "a/b", call = "reconcile", "the run failed");
    }

    fn giving() {
        let fields = r#"[["page","a b"],["n","1"],["stack","Traceback:\n  File \"a.py\"\u001b[31m"]]"#;
        tracing::info!(target: GUEST, plugin = "p", fields, "seen");
    }

    #[test]
    fn a_field_of_a_span_and_of_an_event_is_there_once() {
        let line =
            r#"WARN the run failed controller=web key=a/b error="it is\nno page" attempt=2 last=false call=reconcile"#;
        assert_eq!(logged(Form::Text, failing), [line]);
        let line = r#""level":"WARN","message":"the run failed","controller":"web","key":"a/b","error":"it is\nno page","attempt":2,"last":false,"call":"reconcile"}"#;
        assert_eq!(logged(Form::Json, failing), [line]);
    }

    #[test]
    fn however_much_a_component_gives_its_line_is_bounded_and_says_whose_it_is() {
        let lines = "\n".repeat(30_000);
        let given = serde_json::to_string(&[("a", &*lines), ("b", &*"x".repeat(100_000))]).unwrap();
        let line = logged(Form::Json, || tracing::info!(target: GUEST, plugin = "p", fields = given, "seen")).remove(0);
        assert!(line.len() < 16 << 10 && line.contains(r#""plugin":"p""#), "{}", line.len());
        let forged = serde_json::to_string(&[("x controller", "a b\\")]).unwrap();
        let line = logged(Form::Text, || tracing::info!(target: GUEST, fields = forged, "seen"));
        assert_eq!(line, [r#"INFO seen "x controller"="a b\\""#]);
    }

    #[test]
    fn fields_of_components_are_fields_and_what_has_several_lines_has_them() {
        let lines = [r#"INFO seen plugin=p page="a b" n=1"#, "    stack: Traceback:", r#"      File "a.py"\u{1b}[31m"#];
        assert_eq!(logged(Form::Text, giving), lines);
        let line = r#""level":"INFO","message":"seen","plugin":"p","fields":{"n":"1","page":"a b","stack":["Traceback:","  File \"a.py\"\u001b[31m"]}}"#;
        assert_eq!(logged(Form::Json, giving), [line]);
    }

    #[test]
    fn what_is_no_list_of_fields_is_a_text_and_messages_of_the_daemon_may_have_lines() {
        let line = logged(Form::Text, || tracing::info!(target: GUEST, fields = "x=1", "a\u{202e}b"));
        assert_eq!(line, [r#"INFO a\u{202e}b fields="x=1""#]);
        let lines = logged(Form::Text, || tracing::error!("bad:\n1 | x\n  ^"));
        assert_eq!(lines, ["ERROR bad:", "    1 | x", "      ^"]);
    }
}
