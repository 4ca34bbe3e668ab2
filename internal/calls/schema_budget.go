package calls

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// Each validation has a budget of steps. Every schema object gets a hook, and the validator calls the hook before its
// own work on the object. The hook is a format with a check. The check takes the steps of that work from the budget.
// When the budget is used up or the context has ended, the check panics with validationEnd, and validate recovers. The
// hook replaces the format that the schema names. This loses nothing, because formats are only annotations here, as in
// draft 2020-12.
//
// The budget is necessary because the validator takes exponential time for some schemas of a few hundred bytes. An
// example is a chain of definitions in which each definition names the next one twice in an anyOf. The validator also
// keeps a value for each problem that it finds, and it takes no context.

// maxSteps is the most steps of one validation. One step is one check of a value by a schema object, or the comparison
// of one member, item, name or value. A step takes at most about a microsecond and 500 bytes.
const maxSteps = 1_000_000

// maxPatternBytes and maxInstructions are the limits of one pattern. The steps of one match are the instructions of the
// pattern's program times the bytes of the text, divided by instructionsPerStep, because the time of a match grows with
// both.
const maxPatternBytes, maxInstructions, instructionsPerStep = 4 << 10, 4 << 10, 100

// maxAllInstructions is the most instructions that all patterns of a schema have together. To compile an instruction
// takes about a microsecond and 500 bytes. Parts of a pattern that take more count as several instructions.
const maxAllInstructions = 64 << 10

// These constants turn the size of a character class into instructions. A compiled class holds its runes up to three
// times: \pL, which has 1,300 runes, takes 13 KB. To read the name of a class takes 100 microseconds. A range that
// ignores case is read rune by rune, up to the last rune that has cases.
const (
	runesPerInstruction  = 64
	perUnicodeClass      = 100
	foldedPerInstruction = 40
	lastFolded           = 0x1e943
)

// bytesPerStep is how many bytes of a text count as one step. Texts count because the validator counts their characters
// and compares them.
const bytesPerStep = 256

// stepBudget is the number of steps that a validation may still take.
type stepBudget struct {
	ended func() error // returns why the validation has to end, or nil
	left  int
}

// validationEnd is the value of the panic that ends a validation.
type validationEnd struct{ cause error }

var errSteps = errors.New("it takes too many steps to validate: it is too long for its schema")

// pay takes steps from the budget, or ends the validation.
func (b *stepBudget) pay(steps int) {
	before := b.left
	b.left -= steps
	const between = 1 << 10 // steps between two checks of the context
	if b.left < 0 {
		panic(validationEnd{errSteps})
	}
	if b.left/between != before/between {
		if err := b.ended(); err != nil {
			panic(validationEnd{err})
		}
	}
}

// validate checks a value against the schema. The error is an *invalidReply, or the reason why ctx ended.
func (s *Schema) validate(ctx context.Context, value any) (err error) {
	*s.budget = stepBudget{ended: ctx.Err, left: maxSteps}
	defer func() {
		switch v := recover().(type) {
		case nil:
		case validationEnd:
			if err = v.cause; errors.Is(err, errSteps) {
				err = &invalidReply{[]string{err.Error()}}
			}
		default:
			panic(v)
		}
	}()
	if wrong, ok := errors.AsType[*jsonschema.ValidationError](s.compiled.Validate(value)); ok {
		return &invalidReply{leaves(wrong)}
	}
	return nil
}

// meter gives a hook to every schema object that the validator can reach.
func (s *Schema) meter() {
	seen := map[*jsonschema.Schema]bool{s.compiled: true}
	for todo := []*jsonschema.Schema{s.compiled}; len(todo) > 0; {
		object := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		inside := innerSchemas(object)
		for _, part := range inside {
			if !seen[part] {
				seen[part] = true
				todo = append(todo, part)
			}
		}
		if object.Bool == nil {
			s.hook(object)
		}
	}
}

// hook makes the validator pay for its work on a schema object.
func (s *Schema) hook(object *jsonschema.Schema) {
	once, each := objectSteps(object)
	object.Format = &jsonschema.Format{Name: "any", Validate: func(value any) error {
		steps := once
		switch value := value.(type) {
		case map[string]any:
			steps += each * len(value)
		case []any:
			steps += each * len(value)
			if n := len(value); object.UniqueItems && n > 20 {
				steps += weight(value) // The validator compares the hashes of the items.
			} else if object.UniqueItems && n > 1 {
				steps += weight(value) * (n / 2) // The validator compares each item with each other item.
			}
		case string:
			steps += len(value) / bytesPerStep
		case json.Number:
			steps += weight(value) - 1
		}
		s.budget.pay(steps)
		return nil
	}}
	// The validator compares enum and const before it calls the hook, so extensions that pay replace them.
	if object.Enum != nil {
		object.Extensions = append(object.Extensions, newAllowedValues(s.budget, object.Enum.Values))
		object.Enum = nil
	}
	if object.Const != nil {
		object.Extensions = append(object.Extensions, newAllowedValues(s.budget, []any{*object.Const}))
		object.Const = nil
	}
}

// weight returns how many steps the comparison of a value takes. Each value inside the value takes one step. A long
// text takes more steps, and so does a number that the validator turns into a large fraction.
func weight(value any) int {
	steps := 1
	switch value := value.(type) {
	case map[string]any:
		for name, member := range value {
			steps += len(name)/bytesPerStep + weight(member)
		}
	case []any:
		for _, item := range value {
			steps += weight(item)
		}
	case string:
		steps += len(value) / bytesPerStep
	case json.Number:
		if len(value) > 20 || strings.ContainsAny(value.String(), "eE") {
			steps += 3
		}
	}
	return steps
}

// objectSteps returns how many steps the work on a schema object takes at most. The result once is for the value
// itself. The result each is for every member or item of the value. The schema objects inside pay for their own work.
func objectSteps(object *jsonschema.Schema) (once, each int) {
	once = 1 + len(object.Required) + len(object.AllOf) + len(object.AnyOf) + len(object.OneOf) +
		len(object.DependentSchemas)
	for _, names := range object.DependentRequired {
		once += 1 + len(names)
	}
	for _, needed := range object.Dependencies {
		names, _ := needed.([]string)
		once += 1 + len(names)
	}
	each = 1 + len(object.PatternProperties)
	for _, part := range []*jsonschema.Schema{
		object.PropertyNames, object.UnevaluatedProperties, object.Contains, object.UnevaluatedItems,
	} {
		if part != nil {
			each++
		}
	}
	return once, each
}

// innerSchemas returns the schema objects that a schema object holds or refers to.
func innerSchemas(object *jsonschema.Schema) []*jsonschema.Schema {
	all := slices.Concat(object.AllOf, object.AnyOf, object.OneOf, object.PrefixItems, []*jsonschema.Schema{
		object.Ref, object.Not, object.If, object.Then, object.Else, object.PropertyNames, object.UnevaluatedProperties,
		object.Contains, object.Items2020, object.UnevaluatedItems,
	})
	all = slices.AppendSeq(all, maps.Values(object.Properties))
	all = slices.AppendSeq(all, maps.Values(object.PatternProperties))
	all = slices.AppendSeq(all, maps.Values(object.DependentSchemas))
	loose := []any{object.AdditionalProperties, object.Items, object.AdditionalItems}
	for _, part := range slices.AppendSeq(loose, maps.Values(object.Dependencies)) {
		switch part := part.(type) {
		case *jsonschema.Schema:
			all = append(all, part)
		case []*jsonschema.Schema:
			all = append(all, part...)
		}
	}
	return slices.DeleteFunc(all, func(part *jsonschema.Schema) bool { return part == nil })
}

// allowedValues is an extension of a schema object. It checks that a value equals one of the allowed values, and pays
// for the comparison.
type allowedValues struct {
	budget *stepBudget
	values []any
	weight int // how many steps it takes to compare all values
}

func newAllowedValues(b *stepBudget, values []any) *allowedValues {
	return &allowedValues{b, values, weight(values) - 1}
}

// Validate implements jsonschema.SchemaExt.
func (e *allowedValues) Validate(ctx *jsonschema.ValidatorContext, value any) {
	// A comparison ends at the first difference, so it never takes more steps than the allowed value has.
	e.budget.pay(e.weight)
	if number, ok := value.(json.Number); ok {
		e.budget.pay(len(e.values) * weight(number))
	}
	for _, allowed := range e.values {
		if equal, _ := ctx.Equals(value, allowed); equal {
			return
		}
	}
	ctx.AddError(&kind.Enum{Got: value, Want: e.values})
}

// patterns is the validator's engine for regular expressions. It uses package regexp, and pays from the budget before
// it matches. It compiles each pattern once, although the validator asks for the pattern several times.
// maxAllInstructions bounds the instructions of all patterns together.
type patterns struct {
	budget       *stepBudget
	known        map[string]*pattern // keyed by the text of the pattern
	instructions int                 // how many instructions all patterns so far have
}

var errPatterns = fmt.Errorf(
	"its patterns take more than %d instructions together: repeat less, or use fewer patterns or character classes",
	maxAllInstructions,
)

// compile implements jsonschema.RegexpEngine.
func (p *patterns) compile(text string) (jsonschema.Regexp, error) {
	if known, ok := p.known[text]; ok {
		return known, nil
	}
	if len(text) > maxPatternBytes {
		return nil, fmt.Errorf("it has %d bytes, %d are allowed", len(text), maxPatternBytes)
	}
	if p.instructions += readingSize(text); p.instructions > maxAllInstructions {
		return nil, errPatterns
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	n := programSize(parsed, math.MaxInt)
	if n > maxInstructions {
		return nil, fmt.Errorf("it takes %d instructions, %d are allowed: repeat less", n, maxInstructions)
	}
	if p.instructions += programSize(parsed, runesPerInstruction); p.instructions > maxAllInstructions {
		return nil, errPatterns
	}
	compiled, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	p.known[text] = &pattern{compiled, p.budget, n}
	return p.known[text], nil
}

// readingSize turns the work of reading a pattern's character classes into a number of instructions. The program of the
// pattern does not show this work, because equal classes become one in the program.
func readingSize(text string) int {
	size := perUnicodeClass * (strings.Count(text, `\p`) + strings.Count(text, `\P`))
	if !ignoresCase.MatchString(text) {
		return size
	}
	for i := range len(text) {
		if text[i] == '-' {
			size += foldedRunes(text[:i], text[i+1:]) / foldedPerInstruction
		}
	}
	return size
}

// ignoresCase finds a flag that makes a pattern ignore case.
var ignoresCase = regexp.MustCompile(`\(\?[a-zA-Z]*i`)

// foldedRunes returns an upper bound for the runes with cases in a range of a pattern. before and after are the texts
// on both sides of the range's hyphen.
func foldedRunes(before, after string) int {
	low, _ := utf8.DecodeLastRuneInString(before)
	if low == '}' { // It may end a number, as in \x{61}.
		low = 0
	}
	high, _ := utf8.DecodeRuneInString(after)
	if high == '\\' {
		high = 0o777 // the highest rune that an escape without braces can name
		if number, ok := strings.CutPrefix(after, `\x{`); ok {
			number, _, _ = strings.Cut(number, "}")
			if n, err := strconv.ParseInt(number, 16, 32); err == nil {
				high = rune(n)
			}
		}
	}
	return max(int(min(high, lastFolded)-low), 0)
}

// programSize returns about how many instructions the program of a pattern has. It does not build the program, because
// a pattern of 4 KiB may have a program of millions of instructions. A character class counts as one instruction, and
// one more for every runesPerOne runes in the class.
func programSize(re *syntax.Regexp, runesPerOne int) int {
	inside := 0
	for _, sub := range re.Sub {
		inside += programSize(sub, runesPerOne)
	}
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune)
	case syntax.OpCharClass:
		return 1 + len(re.Rune)/runesPerOne
	case syntax.OpConcat:
		return inside
	case syntax.OpAlternate:
		return inside + len(re.Sub) - 1
	case syntax.OpCapture, syntax.OpStar:
		return inside + 2
	case syntax.OpRepeat:
		if re.Max < 0 { // x{2,} is xx+
			return inside*max(re.Min, 1) + 2
		}
		return max(inside*re.Max+re.Max-re.Min, 1) // x{2,4} is xx(x(x)?)?
	default:
		return inside + 1
	}
}

type pattern struct {
	*regexp.Regexp
	budget       *stepBudget
	instructions int
}

// MatchString implements jsonschema.Regexp.
func (p *pattern) MatchString(text string) bool {
	p.budget.pay(1 + p.instructions*len(text)/instructionsPerStep)
	return p.Regexp.MatchString(text)
}
