package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
)

var update = flag.Bool("update", false, "write api/roster.schema.json")

const (
	schemaFile = "../../api/roster.schema.json"
	schemaURL  = "https://raw.githubusercontent.com/councild/councild/main/api/roster.schema.json"
	exampleOf  = "../../docs/roster.yaml"
	// schemaLine tells editors where the schema is. Editors with the YAML language server understand it.
	schemaLine = "# yaml-language-server: $schema=" + schemaURL + "\n"
)

type object = map[string]any

// texts are the schemas of single values. The parser takes a number or a boolean for a text, as YAML users expect.
func texts() map[string]object {
	return map[string]object{
		"text":   {"type": []string{"string", "number", "boolean"}, "minLength": 1},
		"id":     {"type": []string{"string", "number", "boolean"}, "pattern": modelID.String()},
		"count":  {"type": "integer", "minimum": 1, "maximum": math.MaxInt32},
		"amount": {"type": "number", "exclusiveMinimum": 0},
		"price":  {"type": "number", "minimum": 0},
		"true":   {"type": "boolean"},
	}
}

// rosterSchema returns the JSON Schema of a roster. It cannot say what the parser checks across entries, such as that a
// member is a model. The descriptions are the comments of docs/roster.yaml.
func rosterSchema(comments map[string]string) object {
	kinds := texts()
	list := func(of object) object { return object{"type": "array", "minItems": 1, "items": of} }
	names := func(pattern *regexp.Regexp, def string) object {
		return object{"type": "object", "propertyNames": object{"pattern": pattern.String()}, "additionalProperties": ref(def)}
	}
	// mapping returns a mapping with known keys. The comments of these keys are in a section of docs/roster.yaml.
	mapping := func(section string, properties object, required ...string) object {
		for key, value := range properties {
			if comment := comments[section+"."+key]; comment != "" {
				described := maps.Clone(value.(object))
				described["description"] = comment
				properties[key] = described
			}
		}
		m := object{"type": "object", "additionalProperties": false, "properties": properties}
		if len(required) > 0 {
			m["required"] = required
		}
		return m
	}
	rates := func(more object) object {
		all := object{"request": kinds["price"]}
		for _, key := range []string{"input", "cached_input", "cache_write", "output", "reasoning"} {
			all[key] = kinds["price"]
		}
		maps.Copy(all, more)
		return all
	}
	root := mapping("", object{
		"version":   object{"const": 1},
		"default":   kinds["id"],
		"models":    names(modelID, "model"),
		"councils":  names(modelID, "council"),
		"classes":   object{"type": "array", "minItems": 1, "uniqueItems": true, "items": kinds["text"]},
		"tokens":    names(TokenName, "token"),
		"providers": names(ProviderName, "provider"),
	}, "version", "models", "councils")
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["$id"] = schemaURL
	root["title"] = "The roster of councild"
	root["description"] = "Models, and councils of them. https://github.com/councild/councild/blob/main/docs/roster.md explains each key."
	root["if"] = object{"properties": object{"councils": object{"minProperties": 2}}, "required": []string{"councils"}}
	root["then"] = object{"required": []string{"default"}}
	hasMode := func(m council.Mode) object {
		return object{"properties": object{"mode": object{"const": m}}, "required": []string{"mode"}}
	}
	councilDef := mapping("councils", object{
		"members": list(kinds["id"]), "mode": object{"enum": council.Modes()}, "first": kinds["count"], "answer_form": ref("answer_form"),
		"reviewers": list(kinds["id"]), "chairman": kinds["id"], "fallbacks": list(kinds["id"]), "quorum": kinds["count"],
		"max_cost_usd": kinds["amount"], "max_total_tokens": kinds["count"], "timeout_seconds": kinds["count"],
		"data_class": kinds["text"], "tools": object{"enum": []council.ToolsPolicy{council.ToolsRefuse, council.ToolsIgnore}},
		"side_requests": kinds["id"], "degraded_note": kinds["true"], "audience": list(kinds["text"]),
	}, "members")
	councilDef["allOf"] = []object{
		{
			"if":   hasMode(council.ModeSingle),
			"then": object{"properties": object{"members": object{"maxItems": 1}, "first": false}},
			"else": object{"properties": object{"members": object{"minItems": 2}}},
		},
		{"if": hasMode(council.ModeVote), "then": object{"required": []string{"answer_form"}, "properties": object{"first": false}}},
	}
	form := mapping("", object{
		"type": object{"enum": []string{
			council.FormExact, council.FormNormalised, council.FormChoice, council.FormNumber, council.FormJSON,
		}},
		"options": object{"type": "array", "minItems": 2, "uniqueItems": true, "items": kinds["text"]},
	}, "type")
	form["if"] = object{"properties": object{"type": object{"const": council.FormChoice}}}
	form["then"] = object{"required": []string{"options"}}
	form["else"] = object{"properties": object{"options": false}}
	provider := mapping("providers", object{
		"base_url": object{"type": "string", "pattern": `^https?://[^\s?#@]+$`}, "headers": ref("values"), "query": ref("values"),
		"key_file": kinds["text"], "key_variable": kinds["text"], "max_calls": kinds["count"], "idle_timeout_seconds": kinds["count"],
	}, "base_url")
	provider["not"] = object{"required": []string{"key_file", "key_variable"}}
	secret := mapping("", object{"file": kinds["text"], "variable": kinds["text"]})
	secret["minProperties"], secret["maxProperties"] = 1, 1
	root["$defs"] = object{
		"model": mapping("models", object{
			"model":    object{"type": []string{"string", "number", "boolean"}, "minLength": 1, "not": object{"pattern": "#[0-9]+$"}},
			"provider": kinds["text"], "maker": kinds["text"], "system": kinds["text"], "reasoning_effort": kinds["text"],
			"max_output_tokens": kinds["count"], "context_tokens": kinds["count"], "clearance": kinds["text"],
			"publish_as": object{"type": []string{"string", "number", "boolean"}, "pattern": "^[a-z0-9][a-z0-9._/:-]{0,63}$"},
			"body":       object{"type": "object", "propertyNames": object{"not": object{"pattern": anyCase(ownMembers())}}},
			"price":      object{"oneOf": []object{{"const": "free"}, ref("price")}},
		}, "model"),
		"price": mapping("models", rates(object{
			"as_of": object{"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"},
			"above": object{"type": "array", "items": mapping("models", rates(object{"input_tokens": kinds["count"]}), "input_tokens")},
		}), "as_of", "input", "output"),
		"council": councilDef, "answer_form": form, "provider": provider,
		"token": mapping("tokens", object{
			"sha256":               object{"type": "string", "pattern": "^[0-9a-f]{64}$"},
			"max_cost_usd_per_day": kinds["amount"], "rate_limit": kinds["count"], "max_sessions": kinds["count"],
			"may": list(object{"enum": rights()}),
		}, "sha256"),
		"values": object{
			"type": "object", "propertyNames": object{"pattern": entryName.String()},
			"additionalProperties": object{"oneOf": []object{
				{"type": []string{"string", "number", "boolean"}, "pattern": visible.String()}, secret,
			}},
		},
	}
	return root
}

func ref(def string) object { return object{"$ref": "#/$defs/" + def} }

// anyCase returns a pattern that matches the names in upper and lower case. ECMAScript has no flag for that in a pattern.
func anyCase(names []string) string {
	either := regexp.MustCompile(`[a-z]`).ReplaceAllStringFunc(strings.Join(names, "|"), func(c string) string {
		return "[" + c + strings.ToUpper(c) + "]"
	})
	return "^(" + either + ")$"
}

// rosterComments returns the comments of docs/roster.yaml by section and key, such as "models.maker".
func rosterComments(t *testing.T) map[string]string {
	t.Helper()
	comments := map[string]string{}
	section := ""
	for line := range strings.Lines(readText(t, exampleOf)) {
		m := regexp.MustCompile(`^( *)(?:- \{)?([a-z0-9_]+):(?:.*? # (.*))?`).FindStringSubmatch(strings.TrimRight(line, "\n"))
		switch {
		case m == nil:
		case m[1] == "":
			section = m[2]
		case m[3] != "" && comments[section+"."+m[2]] == "":
			comments[section+"."+m[2]] = strings.ToUpper(m[3][:1]) + m[3][1:]
		}
	}
	return comments
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// schema returns the compiled api/roster.schema.json.
func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(readText(t, schemaFile)))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(schemaURL, document); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile(schemaURL)
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// checked returns what the schema and the parser say of a roster. The settings have the provider claude.
func checked(t *testing.T, s *jsonschema.Schema, text string) (bySchema, byParser error) {
	t.Helper()
	var c Config
	c.Providers = Providers{{Name: "claude"}}
	c.MaxModels = 12
	_, byParser = c.ParseRoster([]byte(text))
	var node yaml.Node
	if err := yaml.Unmarshal([]byte(text), &node); err != nil {
		return err, byParser
	}
	data, err := json.Marshal(value(node.Content[0]))
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(document), byParser
}

// value returns the value of a node in the types of encoding/json, as an editor reads it: a day is a text.
func value(n *yaml.Node) any {
	if n.Kind == yaml.MappingNode {
		m := object{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			m[n.Content[i].Value] = value(n.Content[i+1])
		}
		return m
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!timestamp" {
		return n.Value
	}
	if n.Kind == yaml.SequenceNode {
		list := []any{}
		for _, entry := range n.Content {
			list = append(list, value(entry))
		}
		return list
	}
	var v any
	if err := n.Decode(&v); err != nil {
		return n.Value
	}
	return v
}

// TestRosterSchema holds api/roster.schema.json to the code. With -update it writes the file.
func TestRosterSchema(t *testing.T) {
	text, err := json.MarshalIndent(rosterSchema(rosterComments(t)), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	if *update {
		if err := os.WriteFile(schemaFile, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(text), readText(t, schemaFile)); diff != "" {
		t.Errorf("run go test ./internal/config -run RosterSchema -update (-want +got):\n%s", diff)
	}
}

// The schema has exactly the keys that the parser knows. The parser names its keys where it finds an unknown one.
func TestRosterSchemaHasEveryKey(t *testing.T) {
	root := rosterSchema(nil)
	defs := root["$defs"].(object)
	example := readText(t, exampleOf)
	s := schema(t)
	for place, m := range map[string]struct {
		after string // the mapping begins after this text
		entry string
		def   any
	}{
		"the roster":        {"version: 1\n", "%s: 1\n", root},
		"a model":           {"  gpt:\n", "    %s: 1\n", defs["model"]},
		"a price":           {"    price:                        # in US dollars per million tokens; the day on which they were read is required\n", "      %s: 1\n", defs["price"]},
		"an entry of above": {"- {", "%s: 1, ", defs["price"].(object)["properties"].(object)["above"].(object)["items"]},
		"a council":         {"  fast:\n", "    %s: 1\n", defs["council"]},
		"an answer form":    {"answer_form: {", "%s: 1, ", defs["answer_form"]},
		"a token":           {"  ci:\n", "    %s: 1\n", defs["token"]},
		"a provider":        {"  box:\n", "    %s: 1\n", defs["provider"]},
	} {
		wrong := strings.Replace(example, m.after, m.after+fmt.Sprintf(m.entry, "qqqqqqqqqqqq"), 1)
		bySchema, byParser := checked(t, s, wrong)
		if bySchema == nil {
			t.Errorf("%s: the schema takes an unknown key", place)
		}
		_, listed, found := strings.Cut(fmt.Sprint(byParser), `"qqqqqqqqqqqq": use `)
		listed, _, _ = strings.Cut(listed, "\n")
		if !found {
			t.Errorf("%s: the parser does not name its keys: %v", place, byParser)
			continue
		}
		want := strings.Split(listed, ", ")
		got := slices.Sorted(maps.Keys(m.def.(object)["properties"].(object)))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-parser +schema):\n%s", place, diff)
		}
	}
}

// All rosters that the pages show fit the schema, and the whole example tells editors where it is.
func TestExampleRosters(t *testing.T) {
	s := schema(t)
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	rosters := map[string]string{"docs/roster.yaml": readText(t, exampleOf)}
	for _, file := range []string{exampleOf, "../../docs/roster.md"} {
		if !strings.Contains(readText(t, file), schemaLine) {
			t.Errorf("%s has no line %s", file, schemaLine)
		}
	}
	for _, page := range append(pages, "../../README.md") {
		for i, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(readText(t, page), -1) {
			if strings.Contains(m[1], "version: 1\n") {
				rosters[fmt.Sprintf("%s, block %d", filepath.Base(page), i+1)] = m[1]
			}
		}
	}
	if len(rosters) < 3 {
		t.Fatalf("found %d rosters", len(rosters))
	}
	for name, text := range rosters {
		bySchema, byParser := checked(t, s, text)
		if bySchema != nil || byParser != nil {
			t.Errorf("%s: schema %v, parser %v", name, bySchema, byParser)
		}
	}
}

// Each change of the example breaks a rule. The schema and the parser refuse all of them.
func TestWrongRosters(t *testing.T) {
	example := readText(t, exampleOf)
	s := schema(t)
	changes := [][3]string{
		{"no version", "version: 1\n", ""},
		{"another version", "version: 1\n", "version: 2\n"},
		{"a key without a value", "default: deep", "default:"},
		{"no default of two councils", "default: deep\n", ""},
		{"models as a list", "models:\n", "models: []\nmodel:\n"},
		{"no councils", "councils:\n", "council:\n"},
		{"an id in capitals", "  local:\n", "  Local:\n"},
		{"a model without its name", "    model: council-gpt ", "    maker2: council-gpt "},
		{"a seat as a model", "model: council-gpt", "model: council-gpt#2"},
		{"a misspelt option", "reasoning_effort: high", "reasoning_efort: high"},
		{"a temperature", "reasoning_effort: high", "temperature: 1"},
		{"no tokens", "max_output_tokens: 16000", "max_output_tokens: 0"},
		{"tokens in words", "context_tokens: 1050000", "context_tokens: many"},
		{"a public name with blanks", "publish_as: openai/gpt", "publish_as: Our GPT"},
		{"a body with a model", "body: {top_k: 40}", "body: {Model: x}"},
		{"a body that is a list", "body: {top_k: 40}", "body: [top_k]"},
		{"a price in words", "price: free", "price: cheap"},
		{"a price without its day", "{as_of: 2026-11-20, input: 4", "{input: 4"},
		{"a price of no day", "{as_of: 2026-11-20, input: 4", "{as_of: yesterday, input: 4"},
		{"a negative price", "output: 20}", "output: -1}"},
		{"a tier without its tokens", "{input_tokens: 272000, ", "{"},
		{"one member", "    members: [gpt, skeptic, local]\n    first", "    members: [gpt]\n    first"},
		{"members in a text", "    members: [gpt, skeptic, local]\n    first", "    members: gpt, skeptic\n    first"},
		{"an unknown mode", "mode: council ", "mode: panel "},
		{"several members alone", "mode: council ", "mode: single "},
		{"a vote without a form", "mode: council ", "mode: vote "},
		{"a vote with first", "    first: 2 ", "    mode: vote\n    first: 2 "},
		{"an unknown form", "type: choice, options: [A, B]", "type: regex"},
		{"a choice without options", ", options: [A, B]", ""},
		{"options of a number", "type: choice, ", "type: number, "},
		{"a free council", "max_cost_usd: 0.20", "max_cost_usd: 0"},
		{"a time with a unit", "timeout_seconds: 120", "timeout_seconds: 2m"},
		{"an unknown policy", "tools: ignore", "tools: allow"},
		{"a note in words", "degraded_note: true", "degraded_note: sometimes"},
		{"a class twice", "[public, internal]", "[public, public, internal]"},
		{"a short hash", "sha256: 9f86", "sha256: 9f8"},
		{"an unknown right", "may: [ask, report]", "may: [ask, write]"},
		{"no address", "    base_url: http://127.0.0.1:11434/v1\n", ""},
		{"an address without a scheme", "http://127.0.0.1:11434/v1", "127.0.0.1:11434/v1"},
		{"two keys", "key_variable: AZURE_KEY ", "key_file: /key\n    key_variable: AZURE_KEY "},
		{"a secret of nowhere", "{variable: AZURE_KEY}", "{}"},
		{"a secret of two places", "{variable: AZURE_KEY}", "{variable: AZURE_KEY, file: /key}"},
	}
	if len(changes) < 30 {
		t.Errorf("%d wrong rosters, want 30", len(changes))
	}
	for _, c := range changes {
		t.Run(c[0], func(t *testing.T) {
			if !strings.Contains(example, c[1]) {
				t.Fatalf("the example has no %q", c[1])
			}
			bySchema, byParser := checked(t, s, strings.Replace(example, c[1], c[2], 1))
			if bySchema == nil {
				t.Error("the schema takes it")
			}
			if byParser == nil {
				t.Error("the parser takes it")
			}
		})
	}
}
