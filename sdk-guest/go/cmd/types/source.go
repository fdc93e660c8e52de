// Which types there are in the source of a package, and what stands above them.

package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// source is the source of packages, which are read when a type of theirs is wanted.
type source struct {
	files *token.FileSet
	// folder is where the go command is asked.
	folder string
	// lines are those of files.
	lines    map[*ast.File][]string
	packages map[string]*pkg
}

// pkg is a package.
type pkg struct {
	// path is how others import it; empty for the first one.
	path    string
	markers []marker
	types   map[string]*typed
	// names are those of types, in the order of the source.
	names []string
}

// typed is a type as it is declared.
type typed struct {
	pkg     *pkg
	file    *ast.File
	spec    *ast.TypeSpec
	doc     string
	markers []marker
}

func (s *source) read(folder, path string) (*pkg, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	found := &pkg{path: path, types: map[string]*typed{}}
	for _, entry := range entries {
		name := entry.Name()
		if entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		// Types that a build for another system has are none of the component's.
		if fits, err := build.Default.MatchFile(folder, name); err != nil || !fits {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(s.files, filepath.Join(folder, name), text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		s.lines[file] = strings.Split(string(text), "\n")
		if err := s.add(found, file); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (s *source) add(to *pkg, file *ast.File) error {
	_, markers, err := s.said(file, file.Doc, file.Package)
	if err != nil {
		return err
	}
	to.markers = append(to.markers, markers...)
	for _, declared := range file.Decls {
		types, ok := declared.(*ast.GenDecl)
		if !ok || types.Tok != token.TYPE {
			continue
		}
		for _, one := range types.Specs {
			spec := one.(*ast.TypeSpec)
			doc, begins := spec.Doc, spec.Pos()
			if doc == nil && !types.Lparen.IsValid() {
				doc, begins = types.Doc, types.Pos()
			}
			text, markers, err := s.said(file, doc, begins)
			if err != nil {
				return err
			}
			to.types[spec.Name.Name] = &typed{to, file, spec, text, markers}
			to.names = append(to.names, spec.Name.Name)
		}
	}
	return nil
}

// said returns the text and the markers above something: in its comment, and in one that a blank line keeps apart from it.
func (s *source) said(file *ast.File, doc *ast.CommentGroup, begins token.Pos) (string, []marker, error) {
	var markers []marker
	first := begins
	if doc != nil {
		first = doc.Pos()
	}
	line := s.files.Position(first).Line
	for _, group := range file.Comments {
		end := s.files.Position(group.End()).Line
		apart := end == line-2 && strings.TrimSpace(s.lines[file][end]) == ""
		if group != doc && !apart {
			continue
		}
		for _, comment := range group.List {
			text, is := strings.CutPrefix(strings.TrimSpace(strings.TrimPrefix(comment.Text, "//")), "+")
			if !is {
				continue
			}
			found, err := parse(text, s.files.Position(comment.Pos()))
			if err != nil {
				return "", nil, err
			}
			markers = append(markers, found)
		}
	}
	return text(doc), markers, nil
}

// text returns a comment without its markers.
func text(doc *ast.CommentGroup) string {
	if doc == nil {
		return ""
	}
	lines := strings.Split(doc.Text(), "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "+") })
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

// named returns the type of a name, as a file of a package knows it.
func (s *source) named(at *typed, name ast.Expr) (*typed, string, error) {
	switch name := name.(type) {
	case *ast.Ident:
		return at.pkg.types[name.Name], at.pkg.path + "." + name.Name, nil
	case *ast.SelectorExpr:
		path, err := imported(at.file, name.X)
		if err != nil {
			return nil, "", err
		}
		key := path + "." + name.Sel.Name
		if _, known := outside[key]; known {
			return nil, key, nil
		}
		from, err := s.imported(path)
		if err != nil {
			return nil, "", err
		}
		return from.types[name.Sel.Name], key, nil
	}
	return nil, "", nil
}

func (s *source) imported(path string) (*pkg, error) {
	if known := s.packages[path]; known != nil {
		return known, nil
	}
	list := exec.Command("go", "list", "-f", "{{.Dir}}", "--", path)
	list.Dir = s.folder
	var told bytes.Buffer
	list.Stderr = &told
	folder, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w: %s", path, err, strings.TrimSpace(told.String()))
	}
	found, err := s.read(strings.TrimSpace(string(folder)), path)
	if err != nil {
		return nil, err
	}
	s.packages[path] = found
	return found, nil
}

// imported returns the path of the package that a file calls by a name.
func imported(file *ast.File, name ast.Expr) (string, error) {
	ident, ok := name.(*ast.Ident)
	if !ok {
		return "", fmt.Errorf("%v is no package", name)
	}
	for _, one := range file.Imports {
		path := strings.Trim(one.Path.Value, `"`)
		if one.Name != nil && one.Name.Name == ident.Name {
			return path, nil
		}
		parts := strings.Split(path, "/")
		last := parts[len(parts)-1]
		// A version at the end is no name.
		if len(parts) > 1 && strings.HasPrefix(last, "v") && strings.Trim(last[1:], "0123456789") == "" && last != "v1" {
			last = parts[len(parts)-2]
		}
		if one.Name == nil && last == ident.Name {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not imported under this name", ident.Name)
}
