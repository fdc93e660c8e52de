//! `capstan init`: what is generated builds, and a tool of another version says so at once.

use std::path::Path;
use std::process::{Command, Output};

use scenarios::{capstan, repository, run};

/// What a folder for an operator in Go has.
const FILES: [&str; 11] = [
    ".gitignore",
    "README.md",
    "cases/hello/expected.yaml",
    "cases/hello/primary.yaml",
    "crd.yaml",
    "dev.yaml",
    "example.yaml",
    "go.mod",
    "main.go",
    "main_test.go",
    "operator.yaml",
];

/// Makes a folder for an operator in Go, below which the SDK of this repository is used.
fn generated(folder: &Path) {
    let sdk = repository().join("sdk-guest");
    let [folder, sdk] = [folder, &sdk].map(|path| path.to_str().unwrap());
    let (code, out, err) = run(&["init", "--lang", "go", "--sdk", sdk, "--dir", folder, "greeting"]);
    assert_eq!(code, 0, "{out}{err}");
}

/// Returns the files of a folder and of those below it, each with this before its path.
fn below(folder: &Path, before: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let of = |entry: std::fs::DirEntry| {
        let name = format!("{before}{}", entry.file_name().to_str().unwrap());
        let is_folder = entry.file_type().unwrap().is_dir();
        if is_folder { below(&entry.path(), &format!("{name}/")) } else { vec![name] }
    };
    entries.flat_map(of).collect()
}

/// Runs a command of Go there, by the toolchain that the SDK names, or by this one.
fn go(folder: &Path, toolchain: Option<&str>, arguments: &[&str]) -> Output {
    let sdk = std::fs::read_to_string(repository().join("sdk-guest/go/go.mod")).unwrap();
    let named = sdk.lines().find_map(|line| line.strip_prefix("toolchain ")).unwrap();
    let mut command = Command::new("go");
    command.args(arguments).current_dir(folder).env("GOTOOLCHAIN", toolchain.unwrap_or(named)).env("GOWORK", "off");
    command.env("CAPSTAN", capstan()).output().unwrap()
}

#[test]
fn s004_a_project_is_generated_and_builds() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("greeting");
    generated(&folder);
    let mut files = below(&folder, "");
    files.sort();
    assert_eq!(files, FILES);
    for arguments in [&["mod", "tidy"][..], &["tool", "component", "-o", "operator.wasm"]] {
        let Output { status, stderr, .. } = go(&folder, None, arguments);
        assert!(status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&stderr));
    }
    let at = |name: &str| folder.join(name).display().to_string();
    let cache = home.path().join("code").display().to_string();
    let (code, out, err) =
        run(&["check", "-m", &at("operator.yaml"), "--crd", &at("crd.yaml"), "--code-cache", &cache]);
    assert_eq!(code, 0, "{out}{err}");
}

#[test]
fn a_go_that_is_too_old_says_so_in_one_line_before_anything_is_built() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("greeting");
    generated(&folder);
    let module = std::fs::read_to_string(folder.join("go.mod")).unwrap();
    let (needed, later) = ("\ngo 1.27.1\n", "\ngo 1.999.1\n");
    assert!(module.contains(needed), "{module}");
    std::fs::write(folder.join("go.mod"), module.replace(needed, later)).unwrap();
    let Output { status, stderr, .. } = go(&folder, Some("local"), &["tool", "component", "-o", "operator.wasm"]);
    let said = String::from_utf8(stderr).unwrap();
    assert!(!status.success() && said.lines().count() == 1, "{said}");
    assert!(said.contains("requires go >= 1.999.1 (running go 1.") && said.contains("GOTOOLCHAIN=local"), "{said}");
    assert!(!folder.join("operator.wasm").exists());
}
