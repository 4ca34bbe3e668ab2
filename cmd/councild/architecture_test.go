package main

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every function and type that ARCHITECTURE.md names with its package exists.
func TestArchitectureNamesWhatThereIs(t *testing.T) {
	packages, declared := map[string]bool{}, map[string]bool{}
	err := filepath.WalkDir("../../internal", func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(gotoken.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		packages[file.Name.Name] = true
		for _, declaration := range file.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				declared[file.Name.Name+"."+receiver(d)+d.Name.Name] = true
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if s, ok := spec.(*ast.TypeSpec); ok {
						declared[file.Name.Name+"."+s.Name.Name] = true
						declared[file.Name.Name+".(*"+s.Name.Name+")"] = true
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`([a-z0-9]+)\\.((?:\\(\\*\\w+\\)\\.?)?\\w*)`").FindAllStringSubmatch(string(text), -1)
	checked := 0
	for _, name := range names {
		if !packages[name[1]] {
			continue // such as an event or a file
		}
		checked++
		if !declared[name[1]+"."+name[2]] {
			t.Errorf("there is no %s.%s", name[1], name[2])
		}
	}
	if checked < 20 {
		t.Errorf("%d names checked: the pattern misses them", checked)
	}
}

// receiver returns "(*T)." of a method on a pointer, "T." of one on a value, and ""
// of a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	switch of := d.Recv.List[0].Type.(type) {
	case *ast.StarExpr:
		if name, ok := of.X.(*ast.Ident); ok {
			return "(*" + name.Name + ")."
		}
	case *ast.Ident:
		return of.Name + "."
	}
	return ""
}
