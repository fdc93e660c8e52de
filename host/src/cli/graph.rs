//! `capstan graph`: prints the dependents of workflows in the order in which they are reconciled, as text or as a drawing (WF-1); with
//! what each came to in the last run of a primary, if a running daemon is asked.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::ensure;
use capstan_core::manifest::{Condition, Controller, Node as Dependent, Operator, Outside, Workflow};
use layout::backends::svg::SVGWriter;
use layout::core::base::Orientation;
use layout::core::color::Color;
use layout::core::geometry::Point;
use layout::core::style::StyleAttr;
use layout::std_shapes::shapes::{Arrow, Element, ShapeKind};
use layout::topo::layout::VisualGraph;

use crate::cli::args::{Drawing, Graph};
use crate::operators;

mod last;

use last::{Last, Outcome};

/// The longest line of a box in a drawing, in characters: an expression may be much longer.
const LONGEST: usize = 48;

/// The most boxes of a drawing that is laid out with care, which takes minutes for hundreds.
const TIDY: usize = 50;

/// Prints the workflows.
///
/// # Errors
/// If a manifest can't be read or is wrong, or none has dependents; if the daemon does not answer, or knows nothing of the primary.
pub async fn run(args: &Graph) -> anyhow::Result<ExitCode> {
    let operators = operators::valid(&args.manifests)?;
    let mut parts: Vec<_> = operators.iter().flat_map(parts).collect();
    ensure!(!parts.is_empty(), "no manifest has a workflow with dependents");
    if let Some(object) = &args.object {
        last::mark(&mut parts, object, &last::asked(&args.address, object).await?)?;
    }
    crate::print(&match args.output {
        Drawing::Text => text(&parts),
        Drawing::Mermaid => mermaid(&parts),
        Drawing::Svg => svg(&parts),
    })
}

/// A workflow that has dependents.
struct Part {
    controller: Arc<str>,
    /// The name of a standalone workflow; `None`: the managed one.
    workflow: Option<Arc<str>>,
    /// Which workflow it is, and of which kind its primaries are.
    heading: [String; 2],
    nodes: Vec<Node>,
}

/// A dependent of a workflow.
struct Node {
    name: Arc<str>,
    /// Its kind, then its conditions.
    lines: Vec<String>,
    /// Where what it depends on stands, before it.
    parents: Vec<usize>,
    /// What it came to in the last run, if a daemon was asked.
    last: Option<Last>,
}

impl Node {
    /// Returns what stands in its box.
    fn label(&self) -> Vec<&str> {
        let last = self.last.iter().map(|last| &*last.line);
        [&*self.name].into_iter().chain(self.lines.iter().map(String::as_str)).chain(last).collect()
    }
}

fn parts(operator: &Operator) -> impl Iterator<Item = Part> {
    let controllers = operator.controllers.values();
    let parts = controllers.flat_map(move |controller| {
        let standalone = controller.standalone.iter().map(|(name, workflow)| (Some(name), workflow));
        let all = std::iter::once((None, &controller.workflow)).chain(standalone);
        all.map(move |(name, workflow)| part(operator, controller, name, workflow))
    });
    parts.filter(|part| !part.nodes.is_empty())
}

fn part(operator: &Operator, controller: &Controller, name: Option<&Arc<str>>, workflow: &Workflow) -> Part {
    let which = name.map(|name| format!(", standalone workflow {name}")).unwrap_or_default();
    let title = format!("operator {}, controller {}{which}", operator.name, controller.name);
    let nodes = workflow.graph.nodes().iter().filter_map(|node| {
        let lines = lines(workflow.node(&node.name)?);
        Some(Node { name: Arc::clone(&node.name), lines, parents: node.parents.clone(), last: None })
    });
    Part {
        controller: Arc::clone(&controller.name),
        workflow: name.cloned(),
        heading: [title, controller.primary.to_string()],
        nodes: nodes.collect(),
    }
}

fn lines(dependent: Dependent<'_>) -> Vec<String> {
    let conditions = dependent.conditions();
    let what = match dependent {
        Dependent::Object(object) => object.gvk.to_string(),
        Dependent::Thing(Outside { source, state: None, .. }) => format!("outside of the cluster, from {source}"),
        Dependent::Thing(Outside { source, state: Some(state), .. }) => {
            format!("outside of the cluster, from {source}, remembered by {}", state.dependent.gvk)
        }
    };
    let mut lines = vec![format!("{what}{}", if dependent.bulk() { ", any number" } else { "" })];
    for (role, condition) in [
        ("active if", &conditions.activation),
        ("wanted if", &conditions.reconcile_precondition),
        ("ready if", &conditions.ready_postcondition),
        ("gone if", &conditions.delete_postcondition),
    ] {
        lines.extend(condition.iter().map(|condition| format!("{role} {}", said(condition))));
    }
    lines
}

fn said(condition: &Condition) -> String {
    match condition {
        Condition::Ready(kind) => format!("{kind:?} is ready"),
        Condition::Gone => "there is none".to_owned(),
        Condition::CrdPresent => "its kind is served".to_owned(),
        Condition::Cel(expression) => expression.as_str().split_whitespace().collect::<Vec<_>>().join(" "),
        Condition::Export(name) => format!("export {name} says so"),
    }
}

/// Returns the dependents in order, each with what it depends on.
fn text(parts: &[Part]) -> String {
    let of_part = |Part { heading: [title, primary], nodes, .. }: &Part| {
        let width = nodes.iter().map(|node| node.name.len()).max().unwrap_or_default();
        let lines = nodes.iter().enumerate().map(|(number, Node { name, lines, parents, last })| {
            let names: Vec<_> = parents.iter().filter_map(|parent| Some(&*nodes.get(*parent)?.name)).collect();
            let after = (!names.is_empty()).then(|| format!("after {}", names.join(", ")));
            let (kind, conditions) = lines.split_at(lines.len().min(1));
            let last = last.as_ref().map(|last| format!("last: {}", last.line));
            let facts: Vec<_> = kind.iter().chain(&after).chain(conditions).chain(&last).map(String::as_str).collect();
            format!("{:>3}. {name:<width$}  {}\n", number + 1, facts.join("; "))
        });
        format!("{title}: {primary}\n{}", lines.collect::<String>())
    };
    parts.iter().map(of_part).collect::<Vec<_>>().join("\n")
}

/// Returns the workflows as a flowchart that Markdown can contain.
fn mermaid(parts: &[Part]) -> String {
    let mut chart = vec!["flowchart LR".to_owned()];
    for (place, part) in parts.iter().enumerate() {
        let label = |lines: &[&str]| lines.iter().map(|line| escaped(line)).collect::<Vec<_>>().join("<br>");
        let root = format!("p{place}");
        chart.push(format!("  {root}([\"{}\"])", label(&part.heading.each_ref().map(String::as_str))));
        for (number, node) in part.nodes.iter().enumerate() {
            let own = format!("{root}n{number}");
            let class = node.last.as_ref().map(|last| format!(":::{}", last.outcome.class())).unwrap_or_default();
            chart.push(format!("  {own}[\"{}\"]{class}", label(&node.label())));
            let parents: Vec<_> = node.parents.iter().map(|parent| format!("{root}n{parent}")).collect();
            let above = if parents.is_empty() { vec![root.clone()] } else { parents };
            chart.extend(above.iter().map(|above| format!("  {above} --> {own}")));
        }
    }
    if parts.iter().any(|part| part.nodes.iter().any(|node| node.last.is_some())) {
        let classes = Outcome::ALL.into_iter();
        chart.extend(classes.map(|one| format!("  classDef {} fill:{}", one.class(), one.colour())));
    }
    chart.join("\n") + "\n"
}

/// Returns a line as Mermaid reads it: by entities, where it would read markup.
fn escaped(line: &str) -> String {
    let entity = |c: char| match c {
        '"' | '#' | '&' | '<' | '>' | '`' | ';' => format!("#{};", u32::from(c)),
        c => c.to_string(),
    };
    line.chars().map(entity).collect()
}

/// Returns the workflows as one drawing.
fn svg(parts: &[Part]) -> String {
    let mut graph = VisualGraph::new(Orientation::TopToBottom);
    for Part { heading, nodes, .. } in parts {
        let root = graph.add_node(shape(&heading.each_ref().map(String::as_str), None));
        let mut places = Vec::with_capacity(nodes.len());
        for node in nodes {
            let place = graph.add_node(shape(&node.label(), node.last.as_ref()));
            let parents: Vec<_> = node.parents.iter().filter_map(|parent| places.get(*parent).copied()).collect();
            for parent in if parents.is_empty() { vec![root] } else { parents } {
                graph.add_edge(Arrow::simple(""), parent, place);
            }
            places.push(place);
        }
    }
    let mut drawing = SVGWriter::new();
    let quickly = graph.num_nodes() > TIDY;
    graph.do_it(false, quickly, false, &mut drawing);
    framed(&drawing.finalize(), graph.iter_nodes().map(|node| graph.pos(node).bbox(true).1))
}

/// Returns a drawing that is as large as what ends at these points: the writer takes the lengths of texts for heights.
fn framed(drawing: &str, ends: impl Iterator<Item = Point>) -> String {
    let Point { x, y } = ends.fold(Point::zero(), |far, end| Point::new(far.x.max(end.x), far.y.max(end.y)));
    let (x, y) = (x.ceil(), y.ceil());
    let svg = drawing.split_once("<svg").and_then(|(_, rest)| rest.split_once('>'));
    let (_, content) = svg.unwrap_or_default();
    format!("<svg width=\"{x}\" height=\"{y}\" viewBox=\"0 0 {x} {y}\" xmlns=\"http://www.w3.org/2000/svg\">{content}")
}

/// Returns a box as large as its lines, in the colour of what it came to.
fn shape(lines: &[&str], last: Option<&Last>) -> Element {
    let lines: Vec<String> = lines.iter().map(|line| shortened(line)).collect();
    let longest = lines.iter().map(|line| line.chars().count()).max().unwrap_or_default();
    #[expect(clippy::cast_precision_loss, reason = "they are few")]
    let size = Point::new(longest as f64 * 8.5 + 20.0, lines.len() as f64 * 16.0 + 16.0);
    let shape = ShapeKind::new_box(&lines.join("\n"));
    let mut style = StyleAttr::simple();
    if let Some(last) = last {
        style.fill_color = Color::from_name(last.outcome.colour());
    }
    Element::create(shape, style, Orientation::TopToBottom, size)
}

fn shortened(line: &str) -> String {
    if line.chars().count() <= LONGEST {
        return line.to_owned();
    }
    line.chars().take(LONGEST - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use serde_json::{Value, json};

    use super::*;

    const MANIFEST: &str = r#"{ apiVersion: capstan.dev/v1alpha1, kind: Operator, metadata: { name: web }, spec: {
        plugins: { p: { component: { path: p.wasm } } },
        controllers: {
          pages: { plugin: p, primary: { apiVersion: a.dev/v1, kind: Page },
            workflow: { dependents: {
              deployment: { apiVersion: apps/v1, kind: Deployment, dependsOn: [map], readyPostcondition: { ready: deployment } },
              ingress: { apiVersion: networking.k8s.io/v1, kind: Ingress, dependsOn: [deployment, map],
                reconcilePrecondition: { cel: 'primary.spec.on &&
                  "<b>" != primary.spec.a' } },
              map: { apiVersion: v1, kind: ConfigMap, bulk: true } } },
            standalone: { preview: { dependents: { pod: { apiVersion: v1, kind: Pod, deletePostcondition: gone } } } } },
          bare: { plugin: p, primary: { apiVersion: a.dev/v1, kind: Bare } } } } }"#;

    fn drawn(output: fn(&[Part]) -> String) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("o.yaml");
        fs::write(&file, MANIFEST).unwrap();
        let operators = operators::valid(&[file]).unwrap();
        output(&operators.iter().flat_map(parts).collect::<Vec<_>>())
    }

    #[test]
    fn the_text_has_each_dependent_after_what_it_depends_on_with_its_conditions() {
        // WF-1
        let expected = "\
operator web, controller pages: a.dev/v1 Page
  1. map         v1 ConfigMap, any number
  2. deployment  apps/v1 Deployment; after map; ready if Deployment is ready
  3. ingress     networking.k8s.io/v1 Ingress; after deployment, map; wanted if primary.spec.on && \"<b>\" != primary.spec.a

operator web, controller pages, standalone workflow preview: a.dev/v1 Page
  1. pod  v1 Pod; gone if there is none
";
        assert_eq!(drawn(text), expected);
    }

    #[test]
    fn the_drawings_have_an_arrow_for_each_dependency_and_no_markup_of_the_manifest() {
        let flowchart = drawn(mermaid);
        let arrows = flowchart.lines().filter(|line| line.contains("-->")).map(str::trim).collect::<Vec<_>>();
        let expected = ["p0 --> p0n0", "p0n0 --> p0n1", "p0n1 --> p0n2", "p0n0 --> p0n2", "p1 --> p1n0"];
        assert_eq!(arrows, expected);
        assert!(flowchart.contains("#34;#60;b#62;#34; != primary.spec.a"), "{flowchart}");
        let drawing = drawn(svg);
        assert_eq!((drawing.matches("<rect").count(), drawing.matches("<path").count()), (6, 5), "{drawing}");
        assert!(drawing.contains("ingress") && !drawing.contains("<b>"), "{drawing}");
    }

    fn graph(manifest: PathBuf) -> Graph {
        Graph { manifests: vec![manifest], output: Drawing::Text, object: None, address: String::new() }
    }

    /// Returns the workflows with what the daemon says of a primary.
    fn marked(object: &str, walks: &Value) -> anyhow::Result<Vec<Part>> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("o.yaml");
        fs::write(&file, MANIFEST).unwrap();
        let operators = operators::valid(&[file]).unwrap();
        let mut parts: Vec<_> = operators.iter().flat_map(parts).collect();
        last::mark(&mut parts, object, &serde_json::from_value(walks.clone()).unwrap())?;
        Ok(parts)
    }

    #[test]
    fn what_a_primary_came_to_stands_at_each_node() {
        let nodes = json!([
            { "name": "map", "created": 2 },
            { "name": "deployment", "unchanged": 1, "unmet": ["readyPostcondition"] },
        ]);
        let workflows = json!([{ "workflow": null, "complete": false, "nodes": nodes, "more": 0 }]);
        let row = json!({ "controller": "pages", "primary": "n/a", "secondsAgo": 7, "workflows": workflows });
        let parts = marked("n/a", &json!({ "primaries": [row], "continue": null })).unwrap();
        let expected = "\
operator web, controller pages: a.dev/v1 Page n/a, 7 s ago
  1. map         v1 ConfigMap, any number; last: 2 created
  2. deployment  apps/v1 Deployment; after map; ready if Deployment is ready; last: unchanged, not ready
  3. ingress     networking.k8s.io/v1 Ingress; after deployment, map; wanted if primary.spec.on && \"<b>\" != primary.spec.a; last: not reached

operator web, controller pages, standalone workflow preview: a.dev/v1 Page n/a, 7 s ago
  1. pod  v1 Pod; gone if there is none; last: not reached
";
        assert_eq!(text(&parts), expected);
        let chart = mermaid(&parts);
        for line in
            ["2 created\"]:::done", "not ready\"]:::waits", "not reached\"]:::idle", "classDef failed fill:#f8d0d0"]
        {
            assert!(chart.contains(line), "{line}: {chart}");
        }
        let drawing = svg(&parts);
        assert!(drawing.contains("#d8f0d8") && drawing.contains("unchanged, not ready"), "{drawing}");
        let error = marked("n/b", &json!({ "primaries": [], "continue": null })).err().unwrap().to_string();
        assert!(error.starts_with("the daemon knows of no run of n/b"), "{error}");
    }

    #[tokio::test]
    async fn a_manifest_without_dependents_has_nothing_to_be_drawn() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("o.yaml");
        let bare = "{ apiVersion: capstan.dev/v1alpha1, kind: Operator, metadata: { name: web }, spec: {
            plugins: { p: { component: { path: p.wasm } } },
            controllers: { bare: { plugin: p, primary: { apiVersion: a.dev/v1, kind: Bare } } } } }";
        fs::write(&file, bare).unwrap();
        let error = run(&graph(file)).await.unwrap_err();
        assert_eq!(error.to_string(), "no manifest has a workflow with dependents");
    }
}
