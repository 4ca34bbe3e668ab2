package calls

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// maxSchemaBytes is the size of the largest schema that is accepted, in bytes.
const maxSchemaBytes = 64 << 10

// maxReplyBytes is the size of the largest reply that is validated, in bytes.
const maxReplyBytes = 1 << 20

// schemaLocation is the address of the caller's schema. It is never fetched.
const schemaLocation = "urn:councild:schema"

// Schema is a compiled JSON Schema, of draft 2020-12 unless it names another draft. It is not safe for concurrent use.
type Schema struct {
	compiled *jsonschema.Schema
	budget   *stepBudget // the budget of the validation that runs now
}

// CheckSchemaText finds the problems of a schema that show without compiling it: its size, its JSON and unsupported
// keywords. The error tells the author of the schema what to change.
func CheckSchemaText(text []byte) error {
	_, err := schemaValue(text)
	return err
}

// schemaValue returns the JSON value of a schema. It refuses a schema that is too long or uses unsupported keywords.
func schemaValue(text []byte) (any, error) {
	if len(text) > maxSchemaBytes {
		return nil, fmt.Errorf("it has %d bytes, %d are allowed", len(text), maxSchemaBytes)
	}
	value, err := decodeJSON(text)
	if err != nil {
		return nil, err
	}
	if _, ok := value.(map[string]any); !ok {
		return nil, errors.New("it is not an object")
	}
	return value, refuseUnsupported(value, "")
}

// CompileSchema compiles the text of a schema. The error tells the author of the schema what is wrong, and where. The
// caller must limit how many compilations run at once, because one may take 40 MB.
func CompileSchema(text []byte) (*Schema, error) {
	value, err := schemaValue(text)
	if err != nil {
		return nil, err
	}
	s := &Schema{budget: &stepBudget{}}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noLoader{})
	p := &patterns{budget: s.budget, known: map[string]*pattern{}}
	c.UseRegexpEngine(p.compile)
	if err := c.AddResource(schemaLocation, value); err != nil {
		return nil, errors.New("its address cannot be used")
	}
	switch s.compiled, err = c.Compile(schemaLocation); {
	case p.instructions > maxAllInstructions: // The error of the validator would name each pattern.
		return nil, errPatterns
	case err != nil:
		return nil, explainSchema(err)
	}
	s.meter()
	return s, nil
}

// noLoader refuses to fetch schemas.
type noLoader struct{}

// Load implements jsonschema.URLLoader.
func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is not part of the schema, and nothing is fetched", shorten(url))
}

// refuseUnsupported returns an error if a schema uses keywords or references that are not supported. The argument place
// is the JSON pointer of the value.
func refuseUnsupported(value any, place string) error {
	switch value := value.(type) {
	case []any:
		for i, item := range value {
			if err := refuseUnsupported(item, fmt.Sprintf("%s/%d", place, i)); err != nil {
				return err
			}
		}
	case map[string]any:
		for name, member := range value {
			text, isText := member.(string)
			switch name {
			case "const", "enum", "default", "examples": // These hold values, not schemas.
				continue
			case "$dynamicRef", "$recursiveRef":
				if isText {
					return fmt.Errorf("%s: %s is not supported; use $ref", atPlace(place), name)
				}
			case "$ref":
				if isText && !strings.HasPrefix(text, "#") {
					return fmt.Errorf("%s: the $ref %q leaves the schema; put what it names into $defs, "+
						"and write #/$defs/NAME", atPlace(place), shorten(text))
				}
			}
			if err := refuseUnsupported(member, place+"/"+shorten(name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// atPlace names a place in a JSON value.
func atPlace(place string) string {
	if place == "" {
		return "at the top"
	}
	return "at " + shorten(place)
}

// explainSchema returns why a schema does not compile.
func explainSchema(err error) error {
	if invalid, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		if wrong, ok := errors.AsType[*jsonschema.ValidationError](invalid.Err); ok {
			return errors.New("it is not a JSON Schema: " + strings.Join(leaves(wrong), "; "))
		}
	}
	return errors.New(shorten(strings.ReplaceAll(err.Error(), schemaLocation, "")))
}

// invalidReply is the error of a reply that does not fit a schema. Problems tells the author of the reply what is
// wrong, in at most 20 texts of at most 200 bytes each.
type invalidReply struct{ Problems []string }

// Error returns the problems on one line.
func (e *invalidReply) Error() string { return strings.Join(e.Problems, "; ") }

// Check validates a reply and returns its JSON, without a code fence around the whole reply. The error is an
// *invalidReply if the reply is not exactly one JSON value, if the value does not fit the schema, if the reply is too
// long, or if its validation takes too many steps. Any other error says why ctx ended.
func (s *Schema) Check(ctx context.Context, reply string) (json.RawMessage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(reply) > maxReplyBytes {
		return nil, &invalidReply{[]string{fmt.Sprintf("it has %d bytes, %d are allowed", len(reply), maxReplyBytes)}}
	}
	text := unfence(reply)
	value, err := decodeJSON([]byte(text))
	if err != nil {
		return nil, &invalidReply{[]string{err.Error()}}
	}
	if err := s.validate(ctx, value); err != nil {
		return nil, err
	}
	return json.RawMessage(text), nil
}

// fence begins and ends a block of code in Markdown.
const fence = "```"

// unfence returns a text without white space around it, and without a code fence around the whole text.
func unfence(text string) string {
	text = strings.TrimSpace(text)
	inside, fenced := strings.CutPrefix(text, fence)
	inside, closed := strings.CutSuffix(inside, fence)
	info, block, lines := strings.Cut(inside, "\n")
	if !fenced || !closed || !lines || strings.ContainsAny(info, "`{[\"") {
		return text
	}
	return strings.TrimSpace(block)
}

// The limits of one JSON value. Every level, value and digit is work for the validator, which computes with exact
// fractions.
const (
	maxDepth       = 64
	maxValues      = 100_000
	maxNumberBytes = 100
)

// decodeJSON reads exactly one JSON value. It refuses an object that names a member twice, and a value beyond the
// limits above. Numbers become json.Number.
func decodeJSON(text []byte) (any, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("it is not UTF-8")
	}
	r := jsonReader{decoder: json.NewDecoder(bytes.NewReader(text))}
	r.decoder.UseNumber()
	value, err := r.value(0)
	if err != nil {
		return nil, r.explain(err)
	}
	if rest := bytes.TrimSpace(text[r.decoder.InputOffset():]); len(rest) > 0 {
		return nil, fmt.Errorf("there is more after the JSON value, from byte %d", len(text)-len(rest)+1)
	}
	return value, nil
}

// jsonReader reads one JSON value and counts the values in it.
type jsonReader struct {
	decoder *json.Decoder
	values  int
}

// jsonProblem is the error of JSON that has the right syntax but is refused.
type jsonProblem string

// Error returns the text of the problem.
func (p jsonProblem) Error() string { return string(p) }

func (r *jsonReader) explain(err error) error {
	if _, ok := errors.AsType[jsonProblem](err); ok {
		return fmt.Errorf("%w, at byte %d", err, r.decoder.InputOffset())
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("it is not JSON: %w, at byte %d", err, syntax.Offset)
	}
	return errors.New("it is not whole JSON: it ends too early") // err is io.EOF or io.ErrUnexpectedEOF.
}

func (r *jsonReader) value(depth int) (any, error) {
	token, err := r.decoder.Token()
	if err != nil {
		return nil, err
	}
	if r.values++; r.values > maxValues {
		return nil, jsonProblem(fmt.Sprintf("it holds more than %d values", maxValues))
	}
	if depth > maxDepth {
		return nil, jsonProblem(fmt.Sprintf("it is nested deeper than %d levels", maxDepth))
	}
	switch token := token.(type) {
	case json.Number:
		return r.number(token)
	case json.Delim:
		if token == '{' {
			return r.object(depth)
		}
		return r.list(depth)
	default:
		return token, nil
	}
}

// number refuses numbers with which the validator would compute for too long. These are numbers outside the range of a
// float64, and numbers with more than maxNumberBytes.
func (r *jsonReader) number(n json.Number) (any, error) {
	digits, _, _ := strings.Cut(strings.ToLower(n.String()), "e")
	f, err := n.Float64()
	if tooSmall := f == 0 && strings.Trim(digits, "-0.") != ""; err != nil || tooSmall || len(n) > maxNumberBytes {
		return nil, jsonProblem(fmt.Sprintf("the number %s is too large, too small or too long", shorten(n.String())))
	}
	return n, nil
}

func (r *jsonReader) object(depth int) (any, error) {
	members := map[string]any{}
	for r.decoder.More() {
		token, err := r.decoder.Token()
		if err != nil {
			return nil, err
		}
		name, _ := token.(string) // The decoder accepts no other token here.
		if _, twice := members[name]; twice {
			return nil, jsonProblem(fmt.Sprintf("the member %q stands twice in one object", shorten(name)))
		}
		if members[name], err = r.value(depth + 1); err != nil {
			return nil, err
		}
	}
	_, err := r.decoder.Token()
	return members, err
}

func (r *jsonReader) list(depth int) (any, error) {
	items := []any{}
	for r.decoder.More() {
		item, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	_, err := r.decoder.Token()
	return items, err
}

// An invalidReply names at most maxProblems problems, each in at most maxText bytes. The message of the call's failure
// has at most maxMessage bytes.
const maxProblems, maxText, maxMessage = 20, 200, 1 << 10

// leaves returns the first maxProblems problems of a value, each with its place.
func leaves(e *jsonschema.ValidationError) []string {
	printer := message.NewPrinter(language.English)
	var found []string
	var walk func(e *jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		if len(found) == maxProblems {
			return
		}
		if len(e.Causes) == 0 {
			place := strings.Join(e.InstanceLocation, "/")
			if place != "" {
				place = "/" + place
			}
			words := e.ErrorKind.LocalizedString(printer)
			if format, ok := e.ErrorKind.(*kind.Format); ok { // The validator would quote a whole pattern.
				words = fmt.Sprintf("not a valid %s: %v", format.Want, format.Err)
			}
			found = append(found, shorten(atPlace(place)+": "+words))
		}
		for _, cause := range e.Causes {
			walk(cause)
		}
	}
	walk(e)
	return found
}

// shorten cuts a text to at most maxText bytes.
func shorten(text string) string { return shortenTo(maxText, text) }

// shortenTo cuts a text to at most limit bytes, at the end of a character.
func shortenTo(limit int, text string) string {
	const mark = "..."
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len(mark)], "") + mark
}
