package calls

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp/syntax"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/growth"
)

const person = `{
	"type": "object", "additionalProperties": false, "required": ["name", "tags"],
	"properties": {
		"name": {"type": "string", "minLength": 2, "pattern": "^[A-Z]"},
		"age": {"type": "integer", "minimum": 0},
		"kind": {"enum": ["cat", 1]},
		"tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "uniqueItems": true}
	},
	"$defs": {"tag": {"type": "string"}}
}`

func compiled(tb testing.TB, text string) *Schema {
	tb.Helper()
	s, err := CompileSchema([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func TestCheck(t *testing.T) {
	const valid = `{"name": "Ada", "age": 3, "kind": "cat", "tags": ["a", "b"]}`
	tests := []struct {
		name, reply string
		want        string // the JSON, or a part of the problem after "!"
	}{
		{"valid", valid, valid},
		{"blanks around it", " \n" + valid + "\n\n", valid},
		{"a fence", "```json\n" + valid + "\n```", valid},
		{"a fence without a language", "```\n" + valid + "\n```\n", valid},
		{"a number equal to one of an enum", `{"name": "Ada", "kind": 1.0, "tags": []}`, `{"name": "Ada", "kind": 1.0, "tags": []}`},
		{"trailing prose", valid + "\nI hope this helps.", "!there is more after the JSON value, from byte 62"},
		{"prose before", "Here it is: " + valid, "!it is not JSON"},
		{"prose around a fence", "Here:\n```json\n" + valid + "\n```", "!it is not JSON"},
		{"two fences", "```\n```\n" + valid + "\n```\n```", "!it is not JSON"},
		{"two values", valid + valid, "!there is more after the JSON value"},
		{"cut off", valid[:20], "!it ends too early"},
		{"cut off in a fence", "```json\n" + valid[:20], "!it is not JSON"},
		{"nothing", "", "!it ends too early"},
		{"a doubled member", `{"name": "Ada", "tags": [], "name": "Bob"}`, `!the member "name" stands twice in one object, at byte`},
		{"a missing member", `{"name": "Ada"}`, "!at the top: missing property 'tags'"},
		{"a member too many", `{"name": "Ada", "tags": [], "x": 1}`, "!at the top: additional properties 'x' not allowed"},
		{"a wrong type", `{"name": "Ada", "tags": [1]}`, "!at /tags/0: got number, want string"},
		{"too short", `{"name": "A", "tags": []}`, "!at /name: minLength: got 1, want 2"},
		{"a wrong pattern", `{"name": "ada", "tags": []}`, "!at /name: 'ada' does not match pattern '^[A-Z]'"},
		{"not in the enum", `{"name": "Ada", "kind": "dog", "tags": []}`, "!at /kind: value must be one of 'cat', 1"},
		{"no fraction", `{"name": "Ada", "age": 1.5, "tags": []}`, "!at /age: got number, want integer"},
		{"too small", `{"name": "Ada", "age": -1, "tags": []}`, "!at /age: minimum: got -1, want 0"},
		{"an item twice", `{"name": "Ada", "tags": ["a", "a"]}`, "!at /tags: items at 0 and 1 are equal"},
		{"a huge number", `{"name": "Ada", "age": 1e999999, "tags": []}`, "!the number 1e999999 is too large"},
		{"a number close to zero", `{"name": "Ada", "age": 1e-999999, "tags": []}`, "!the number 1e-999999 is too large, too small"},
		{"zero with an exponent", `{"name": "Ada", "age": 0.0e-999999, "tags": []}`, `{"name": "Ada", "age": 0.0e-999999, "tags": []}`},
		{"a long number", `{"name": "Ada", "age": 1` + strings.Repeat("0", 150) + `, "tags": []}`, "!is too large, too small or too long"},
		{"too deep", strings.Repeat("[", 66) + strings.Repeat("]", 66), "!nested deeper than 64 levels"},
		{"too many values", "[" + strings.Repeat("1,", 100_000) + "1]", "!more than 100000 values"},
		{"too long", strings.Repeat(" ", maxReplyBytes+1), "!1048576 are allowed"},
	}
	s := compiled(t, person)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := s.Check(t.Context(), tt.reply)
			problem, wrong := strings.CutPrefix(tt.want, "!")
			if !wrong {
				if err != nil || string(got) != tt.want {
					t.Errorf("got %q, %v", got, err)
				}
				return
			}
			if _, ok := err.(*invalidReply); !ok || !strings.Contains(err.Error(), problem) { //nolint:errorlint // it is not wrapped
				t.Errorf("got %q, %v; want %q", got, err, problem)
			}
		})
	}
}

// schemaWith returns a schema with so many patterns of a form, which may have a place for their number.
func schemaWith(n int, form string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = `{"pattern":"` + strings.ReplaceAll(form, "%d", strconv.Itoa(i)) + `"}`
	}
	return `{"allOf":[` + strings.Join(all, ",") + `]}`
}

// What a caller is told of a schema names the place.
func TestCompile(t *testing.T) {
	deep := strings.Repeat(`{"not":`, 70) + "{}" + strings.Repeat("}", 70)
	tests := []struct{ name, text, want string }{
		{"too long", `{"x":"` + strings.Repeat("x", maxSchemaBytes) + `"}`, "65536 are allowed"},
		{"no JSON", `{`, "ends too early"},
		{"no object", `true`, "not an object"},
		{"a member twice", `{"type":"string","type":"number"}`, `"type" stands twice`},
		{"too deep", deep, "nested deeper"},
		{"a wrong type", `{"properties":{"a":{"type":"text"}}}`, "at /properties/a/type"},
		{"a wrong keyword", `{"properties":{"a":{"minLength":-1}}}`, "at /properties/a/minLength"},
		{"a remote reference", `{"properties":{"a":{"$ref":"https://example.com/x.json"}}}`, "at /properties/a: the $ref"},
		{"a file", `{"$ref":"file:///etc/passwd"}`, "leaves the schema"},
		{"a relative reference", `{"$ref":"other.json#/a"}`, "leaves the schema"},
		{"another dialect", `{"$schema":"https://example.com/dialect"}`, "nothing is fetched"},
		{"a dynamic reference", `{"items":{"$dynamicRef":"#x"}}`, "at /items: $dynamicRef is not supported"},
		{"a reference to nothing", `{"$ref":"#/$defs/none"}`, "$defs/none"},
		{"an anchor that is not there", `{"$ref":"#none"}`, "none"},
		{"a broken pattern", `{"pattern":"("}`, "not a valid regex"},
		{"a pattern of another engine", `{"pattern":"(?=x)"}`, "not a valid regex"},
		{"a huge pattern", `{"pattern":"` + strings.Repeat("x", maxPatternBytes+1) + `"}`, "4096 are allowed"},
		{
			"a pattern that explodes", `{"pattern":"x{1000}x{1000}x{1000}x{1000}x{1000}"}`,
			"it takes 5000 instructions, 4096 are allowed: repeat less",
		},
		{
			"classes that explode together", schemaWith(15, strings.Repeat(`\\pL`, 1000)+"%d"),
			"its patterns take more than 65536 instructions together: repeat less, or use fewer patterns or character classes",
		},
		{"many patterns that do not", schemaWith(17, "x{999}x{999}x{999}x{999}%d"), "its patterns take more than 65536 instructions together"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := CompileSchema([]byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	for _, text := range []string{
		`{}`, `{"type":"object"}`, `{"$schema":"http://json-schema.org/draft-07/schema#","$ref":"#/definitions/a","definitions":{"a":{}}}`,
		`{"properties":{"$ref":{"type":"string"}},"enum":[{"$ref":"https://example.com"}]}`,
		`{"$id":"https://example.com/x","$ref":"#/$defs/a","$defs":{"a":{}}}`,
		schemaWith(9, `^[\\p{L}\\p{M}'. -]{1,255}%d$`), schemaWith(200, `(?i)^[a-z0-9é-ÿ._-]{1,64}%d$`),
		schemaWith(16, "x{999}x{999}x{999}x{999}%d"), schemaWith(1000, "x{999}x{999}x{999}x{999}"),
	} {
		if _, err := CompileSchema([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// hostile are schemas and replies that take the validator long, or much memory.
func hostile() map[string]struct{ schema, reply string } {
	doubling := func(keyword, leaf string) string {
		var b strings.Builder
		for i := range 60 {
			fmt.Fprintf(&b, `"d%d":{"%s":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, keyword, i+1, i+1)
		}
		return `{"$ref":"#/$defs/d0","$defs":{` + b.String() + `"d60":` + leaf + `}}`
	}
	many := func(n int, item string) string { return "[" + strings.Repeat(item+",", n-1) + item + "]" }
	numbered := func(n int) string {
		items := make([]string, n)
		for i := range items {
			items[i] = strconv.Itoa(i)
		}
		return "[" + strings.Join(items, ",") + "]"
	}
	members := func(n int) string {
		items := make([]string, n)
		for i := range items {
			items[i] = fmt.Sprintf(`"m%d":%d`, i, i)
		}
		return "{" + strings.Join(items, ",") + "}"
	}
	names := strings.NewReplacer("[", `["n`, ",", `","n`, "]", `"]`).Replace(numbered(7000))
	return map[string]struct{ schema, reply string }{
		"doubling anyOf": {doubling("anyOf", `{"type":"string"}`), "1"},
		"doubling allOf": {doubling("allOf", `{}`), "1"},
		"doubling oneOf": {doubling("oneOf", `{"minimum":5}`), "1"},
		"doubling not": {
			strings.Replace(doubling("anyOf", `{"type":"string"}`), `{"$ref":"#/$defs/d0"`, `{"not":{"$ref":"#/$defs/d0"}`, 1), "1",
		},
		"references in a chain":   {doubling("allOf", `true`), many(90_000, "1")},
		"many alternatives":       {`{"items":{"anyOf":` + many(3000, `{"type":"string"}`) + `}}`, many(90_000, "1")},
		"many false alternatives": {`{"items":{"anyOf":` + many(9000, `false`) + `}}`, many(90_000, "1")},
		"many true items":         {`{"allOf":` + many(3500, `{"items":true}`) + `}`, many(90_000, "1")},
		"many choices":            {`{"items":{"enum":` + numbered(10_000) + `}}`, many(90_000, "-1")},
		"many required":           {`{"items":{"required":` + names + `}}`, many(90_000, "{}")},
		"wrong items":             {`{"items":{"type":"string"}}`, many(99_000, "1")},
		"small items":             {`{"items":{"minimum":5}}`, many(99_000, "1")},
		"wrong items in many ways": {
			`{"items":{"allOf":` + many(8, `{"minimum":5,"multipleOf":7,"maximum":-1}`) + `}}`, many(99_000, "1"),
		},
		"unique rows": {
			`{"$defs":{"a":{"uniqueItems":true}},"allOf":` + many(10, `{"$ref":"#/$defs/a"}`) + `}`,
			"[[" + strings.ReplaceAll(strings.Trim(numbered(20), "[]"), ",", strings.Repeat(",1e300", 4900)+"],[") +
				strings.Repeat(",1e300", 4900) + "]]",
		},
		"constants": {
			`{"$defs":{"a":{"const":` + many(3000, "1e300") + `}},"allOf":` + many(1800, `{"$ref":"#/$defs/a"}`) + `}`, many(3000, "1e300"),
		},
		"unique items":    {`{"uniqueItems":true}`, numbered(99_000)},
		"a heavy pattern": {`{"pattern":"^(([a-z])+.)+[A-Z]([a-z])+$"}`, `"` + strings.Repeat("a", maxReplyBytes-2) + `"`},
		"many patterns": {
			`{"allOf":` + many(1000, `{"pattern":"^(a|b)*[A-Z]{1,9}$"}`) + `}`, `"` + strings.Repeat("a", maxReplyBytes-2) + `"`,
		},
		"pattern of names":  {`{"patternProperties":{"(m|x)*[0-9]{1,500}y":{},"^.{1,900}z":{}}}`, members(60_000)},
		"names":             {`{"propertyNames":{"maxLength":1},"additionalProperties":{"type":"string"}}`, members(60_000)},
		"lengths":           {`{"allOf":` + many(3500, `{"minLength":9}`) + `}`, `"` + strings.Repeat("a", maxReplyBytes-2) + `"`},
		"unevaluated":       {`{"allOf":` + many(2000, `{"properties":{"m1":true}}`) + `,"unevaluatedProperties":false}`, members(60_000)},
		"contains":          {`{"contains":{"const":2},"minContains":5}`, many(99_000, "1")},
		"itself":            {`{"allOf":[{"$ref":"#"}]}`, "1"},
		"nested uniqueness": {`{"uniqueItems":true,"items":{"$ref":"#"}}`, strings.Repeat("[", 60) + numbered(90_000) + strings.Repeat("]", 60)},
		"fractions":         {`{"items":{"multipleOf":1e-300,"minimum":1e300}}`, many(10_000, "1e-300")},
	}
}

// A validation ends after a bounded time and with bounded memory, whatever schema and reply are.
// The bound of time is generous: the one that counts is that of steps, and without it most of these
// would run for hours.
func TestHostile(t *testing.T) {
	testkit.Slow(t)
	for name, tt := range hostile() {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			s := compiled(t, tt.schema)
			runtime.ReadMemStats(&before)
			took := growth.Took(t, func() { _, _ = s.Check(t.Context(), tt.reply) })
			runtime.ReadMemStats(&after)
			allocated := (after.TotalAlloc - before.TotalAlloc) >> 20
			t.Logf("%s, %d MiB", took, allocated)
			if took > 20*time.Second || allocated > 2048 {
				t.Errorf("took %s and %d MiB", took, allocated)
			}
		})
	}
}

// A schema is compiled in bounded time and with bounded memory.
func TestHostileSchema(t *testing.T) {
	objects := func(format string, step int) string {
		var b strings.Builder
		b.WriteString(`{"$defs":{`)
		for i := 0; b.Len() < maxSchemaBytes-200; i++ {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(strings.NewReplacer("I", strconv.Itoa(i), "J", strconv.Itoa(i+step)).Replace(format))
		}
		return b.String() + `}}`
	}
	last := func(s string) string { return strings.TrimSuffix(s, "}}") + `,"x":{}}}` }
	for name, text := range map[string]string{
		"many":      objects(`"dI":{}`, 0),
		"booleans":  objects(`"dI":true`, 0),
		"chain":     objects(`"dI":{"$ref":"#/$defs/d0"}`, 1),
		"resources": objects(`"dI":{"$id":"http://h/I"}`, 0),
		"anchors":   objects(`"dI":{"$anchor":"aI","$ref":"#aI"}`, 0),
		"dynamic":   objects(`"dI":{"$dynamicAnchor":"aI"}`, 0),
		"patterns":  objects(`"dI":{"pattern":"(x{30}){30}I"}`, 0),
		"equal":     objects(`"dI":{"pattern":"x{999}x{999}x{999}x{999}"}`, 0),
		"exploding": objects(`"dI":{"pattern":"I(`+strings.Repeat("x", 150)+`){800}"}`, 0),
		// A class is more than one instruction: \pL has 1,300 runes, which each copy of an anchored pattern holds again.
		"classes":              schemaWith(15, strings.Repeat(`\\pL`, 1000)+"%d"),
		"classes in one":       schemaWith(15, "["+strings.Repeat(`\\pL\\PN`, 500)+"]%d"),
		"classes in turn":      schemaWith(15, strings.Repeat(`\\pL|`, 800)+"%d"),
		"anchored classes":     schemaWith(60, `^\\pL{990}%d$`),
		"nested classes":       schemaWith(60, `^((\\pL|[^\\w]){10}){20}%d$`),
		"folded classes":       schemaWith(60, `^(?i)[\\pL\\d_]{990}%d$`),
		"ranges in any case":   schemaWith(15, "(?i)["+strings.Repeat(`\\x{80}-\\x{10ffff}`, 200)+"]%d"),
		"ranges behind others": schemaWith(15, "(?i)["+strings.Repeat(`\\d-b-\\x{10ffff}`, 180)+"]%d"),
		"ranges of signs":      schemaWith(15, "(?i)["+strings.Repeat(`}-\\x{1e943}`, 250)+"]%d"),
		"ranges of letters":    schemaWith(15, "(?s-m:(?mi)["+strings.Repeat("\u00e9-\U0001e943", 350)+"]%d)"),
		"other places":         last(objects(`"dI":{"$ref":"#/$defs/dI/x","x":{"x":{"x":{}}}}`, 0)),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			took := growth.Took(t, func() {
				_, err := CompileSchema([]byte(text))
				t.Logf("%.200v", err)
			})
			runtime.ReadMemStats(&after)
			allocated := (after.TotalAlloc - before.TotalAlloc) >> 20
			t.Logf("%s and %d MiB for %d bytes", took, allocated, len(text))
			if took > 5*time.Second || allocated > 64 {
				t.Errorf("took %s and %d MiB", took, allocated)
			}
		})
	}
}

// Comparing values is paid for by what is compared, however few they are.
func TestStepsOfComparing(t *testing.T) {
	list := "[" + strings.Repeat("1,", 999) + "1]"
	tests := []struct {
		name, schema, reply string
		steps               int // at least
	}{
		{"a constant", `{"const":[` + list + `]}`, "[" + list + "]", 1000},
		{"an object", `{"const":{"a":` + list + `}}`, `{"a":` + list + `}`, 1000},
		{"choices", `{"enum":[` + strings.ReplaceAll(list, "]", ",2]") + "," + list + `]}`, list, 2000},
		{"two items", `{"uniqueItems":true}`, "[" + list + "," + list + "]", 2000},
		{"twenty items", `{"uniqueItems":true}`, "[" + strings.Repeat(list+",", 19) + list + "]", 200_000},
		{"many items", `{"uniqueItems":true}`, "[" + strings.Repeat(list+",", 29) + list + "]", 30_000},
		{"long texts", `{"uniqueItems":true}`, `["` + strings.Repeat("a", 400_000) + `","` + strings.Repeat("a", 400_000) + `"]`, 3000},
		{"long names", `{"uniqueItems":true}`, `[{"` + strings.Repeat("a", 800_000) + `":1},{}]`, 3000},
		{"large numbers", `{"uniqueItems":true}`, strings.ReplaceAll(list, "1", "1e300"), 5000},
		{"pairs of large numbers", `{"uniqueItems":true}`, "[" + strings.Repeat("[1e300],", 19) + "[1e300]]", 1000},
		{"a large number", `{"enum":` + list + `}`, "1e300", 4000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := compiled(t, tt.schema)
			_, _ = s.Check(t.Context(), tt.reply)
			steps := maxSteps - s.budget.left
			if steps < tt.steps {
				t.Errorf("it takes %d steps, want %d", steps, tt.steps)
			}
			if most := 2*tt.steps + 100; steps > most {
				t.Errorf("it takes %d steps, want at most %d", steps, most)
			}
		})
	}
}

// The size of a program is known before it is made.
func TestProgramSize(t *testing.T) {
	for _, text := range []string{
		"", "abc", "(?i)abc", "^a.b$", `[a-z]\pL\bx`, "(a)(?:b)", "a*b+c?", "(a*)*", "ab|cd|[ef]g|", "x{3}y{2,}z{2,5}",
		"(a|b{3}){7,9}", "(x{30}){30}", "x{999}x{999}", `^\pL{9}$`, "(abc){0,50}", "x{0,1000}", "(?:x{0}){9}", "x{0,}", "(?s:.){1,900}",
	} {
		parsed, err := syntax.Parse(text, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		program, err := syntax.Compile(parsed.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		if got, want := programSize(parsed, math.MaxInt), len(program.Inst); got < want-5 || got > want+want/50+5 {
			t.Errorf("%q: %d instructions, want %d", text, got, want)
		}
	}
}

// Validation ends with its context, also in the middle.
func TestCheckCancelled(t *testing.T) {
	tt := hostile()["doubling anyOf"]
	s := compiled(t, tt.schema)
	ended := errors.New("ended")
	looks := 0
	defer func() {
		v, ok := recover().(validationEnd)
		if !ok || !errors.Is(v.cause, ended) {
			t.Errorf("the validation ends with %v", v)
		}
		if looks != 3 {
			t.Errorf("it looked at its context %d times", looks)
		}
	}()
	*s.budget = stepBudget{left: maxSteps, ended: func() error {
		if looks++; looks == 3 {
			return ended
		}
		return nil
	}}
	_ = s.compiled.Validate(json.Number("1"))
	t.Error("the validation was not ended")
}

func TestCheckWithEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := compiled(t, person).Check(ctx, "{}"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestCheckGrowth(t *testing.T) {
	s := compiled(t, `{"items":{"required":["name"],"properties":{"name":{"type":"string"},"n":{"type":"integer"}}}}`)
	reply := func(n int) string {
		const item = `{"name":"Ada Lovelace, the first","n":12345678901234567890}`
		return "```json\n[" + strings.Repeat(item+",", n/(len(item)+1)-2) + item + "]\n```"
	}
	growth.Linear(t, func(n int) func() {
		text := reply(n)
		return func() {
			if _, err := s.Check(t.Context(), text); err != nil {
				t.Error(err)
			}
		}
	})
}

// Whatever a reply is, reading it ends soon, and what is accepted is the JSON of one value.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		`{"a":1}`, "```json\n{\"a\":[1,2.5e3,\"x\"]}\n```", "```\n[]\n```\n", `{"a":1,"a":2}`, `{"a":1} x`, "```json\n{\"a\":",
		`"\ud800"`, `[[[[]]]]`,
		"```\n```\n1\n```\n```",
		`1e400`, "\xff", `{"A":1,"a":2}`, "null", " \t\n", "``````",
	} {
		f.Add(seed)
	}
	s := compiled(f, `{}`)
	f.Fuzz(func(t *testing.T, reply string) {
		growth.Bounded(t, len(reply), func() {
			got, err := s.Check(t.Context(), reply)
			if err != nil {
				return
			}
			if !json.Valid(got) {
				t.Errorf("%q is no JSON", got)
			}
			if !strings.Contains(reply, string(got)) {
				t.Errorf("%q is not a part of the reply", got)
			}
			again, err := s.Check(t.Context(), string(got))
			if err != nil || string(again) != string(got) {
				t.Errorf("read again it is %q, %v", again, err)
			}
		})
	})
}
