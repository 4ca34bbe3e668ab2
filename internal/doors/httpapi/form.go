package httpapi

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/councild/councild/internal/council"
)

// Problems holds the first maxNamed problems of a request, and counts the rest. A hostile request can have a problem in
// every three bytes.
type Problems struct {
	named []council.FieldError
	count int               // how many problems there are, including those in named
	sum   [sha256.Size]byte // the hash of the body, if decode ignored unknown fields
	// Rename turns the place of a field in council.Request into its place in the body, such as "output_schema" into
	// "response_format.schema". If it is nil, the places are the same.
	Rename func(place string) string
}

// Add adds a problem at a place in the body, such as "messages[2].role". The argument fix tells the caller what to send
// instead.
func (p *Problems) Add(field, message, fix string) {
	p.count++
	if len(p.named) < maxNamed {
		p.named = append(p.named, council.FieldError{Field: field, Message: message, Fix: fix})
	}
}

// join adds the field errors of err. It skips a field that already has a problem, because Prepare reports a field that
// could not be read as missing.
func (p *Problems) join(err error) {
	e, ok := errors.AsType[*council.Error](err)
	if !ok || p.count > len(p.named) { // Problems that are not named cannot be compared.
		return
	}
	before := *p
	for _, f := range e.Fields {
		if p.Rename != nil {
			f.Field = p.Rename(f.Field)
		}
		if !before.About(f.Field) {
			p.Add(f.Field, f.Message, f.Fix)
		}
	}
}

// renamed returns a copy of err in which Rename has changed the names of the fields.
func (p *Problems) renamed(err error) error {
	e, ok := errors.AsType[*council.Error](err)
	if !ok || p.Rename == nil {
		return err
	}
	known := *e
	known.Fields = slices.Clone(e.Fields)
	for i := range known.Fields {
		known.Fields[i].Field = p.Rename(known.Fields[i].Field)
	}
	return &known
}

// About reports whether one of the named problems is about this place, about a part of this place, or about a value
// that contains it. A problem with messages is also about query, because the last message is the question.
func (p *Problems) About(place string) bool {
	return slices.ContainsFunc(p.named, func(n council.FieldError) bool {
		return within(place, n.Field) || within(n.Field, place) || place == "query" && n.Field == "messages"
	})
}

// Full reports whether there are maxNamed problems. Further problems are only counted, so callers need not make a text
// for them.
func (p *Problems) Full() bool { return len(p.named) == maxNamed }

// within reports whether a place in a body is inside another one, or the same.
func within(place, other string) bool {
	rest, ok := strings.CutPrefix(place, other)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// err returns the problems as one error, or nil if there are none.
func (p *Problems) err(detail string) error {
	if p.count == 0 {
		return nil
	}
	return &council.Error{Code: council.CodeInvalid, Detail: detail + more(p.count-len(p.named)), Fields: p.named}
}

// form reads a JSON object into a struct. It is stricter than encoding/json: an object may have a field only once, and
// its name must match the json tag exactly. A value that does not fit becomes a problem and does not reach the struct.
type form struct {
	Problems
	open  bool   // unknown fields have no effect
	path  []step // the place that is being read
	known *knownFields
}

// step is one step of a path: a field of an object or, if name is "", an element of a list.
type step struct {
	name  string
	index int
}

// knownField is a field of a struct.
type knownField struct {
	name   string
	number int   // counts the fields of the struct from 0
	index  []int // as in reflect.StructField
}

// knownFields caches the fields of the structs that requests are read into. The key of a field is its name in lower
// case. The zero value of knownFields is an empty cache. A knownFields is safe for concurrent use.
type knownFields struct {
	mu     sync.Mutex // guards byType
	byType map[reflect.Type]map[string]knownField
}

// of returns the fields of a struct.
func (k *knownFields) of(t reflect.Type) map[string]knownField {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byType[t] == nil {
		known := map[string]knownField{}
		for _, field := range reflect.VisibleFields(t) {
			if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "-" && !field.Anonymous {
				known[strings.ToLower(name)] = knownField{name, len(known), field.Index}
			}
		}
		if k.byType == nil {
			k.byType = map[reflect.Type]map[string]knownField{}
		}
		k.byType[t] = known
	}
	return k.byType[t]
}

// read reads body, which must be one JSON object, into the struct that v points to.
func (f *form) read(body []byte, v any) error {
	var whole json.RawMessage
	// json.RawMessage accepts every valid JSON, so no other error is possible.
	if wrong, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(body, &whole)); ok {
		return &council.Error{
			Code: council.CodeMalformed,
			Detail: fmt.Sprintf("the body is not valid JSON (byte %d: "+
				"%v); send one object, which /openapi.yaml describes",
				wrong.Offset, wrong),
		}
	}
	if whole[0] != '{' {
		return &council.Error{
			Code:   council.CodeMalformed,
			Detail: `the body is not a JSON object; send one, such as {"query": "..."}`,
		}
	}
	f.known = cmp.Or(f.known, &knownFields{})
	f.object(reflect.ValueOf(v).Elem(), whole)
	return nil
}

// value reads one JSON value into v. It treats null like a missing field.
func (f *form) value(v reflect.Value, data []byte) {
	if string(data) == "null" {
		return
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	switch t := v.Type(); {
	case t == reflect.TypeFor[json.RawMessage]():
		v.SetBytes(data)
	case data[0] == '"' && f.text(v, data):
	case t.Kind() == reflect.Struct && data[0] == '{' && skim(v, data):
	case t.Kind() == reflect.Struct && data[0] == '{':
		f.object(v, data)
	case t.Kind() == reflect.Slice && data[0] == '[':
		f.list(v, data)
	case t.Kind() == reflect.Struct, t.Kind() == reflect.Slice, json.Unmarshal(data, v.Addr().Interface()) != nil:
		f.refuse(func() (string, string) { return "the value is " + found(data), "give " + wanted(t) })
	}
}

// text reads a JSON string into v. It returns false if v is neither a string nor a TextList, or if a string has
// escapes, which encoding/json must decode.
func (f *form) text(v reflect.Value, data []byte) bool {
	switch kind := v.Kind(); {
	case kind == reflect.Slice:
		list, ok := reflect.TypeAssert[TextList](v.Addr())
		if !ok {
			return false
		}
		var text string
		f.value(reflect.ValueOf(&text).Elem(), data)
		list.SetText(text)
	case kind == reflect.String && bytes.IndexByte(data, '\\') < 0:
		v.SetString(string(data[1 : len(data)-1]))
	default:
		return false
	}
	return true
}

// skim reports whether v is a Skimmer that needs only the type and role of the object. If so, the other fields of the
// object are not checked.
func skim(v reflect.Value, object []byte) bool {
	into, ok := reflect.TypeAssert[Skimmer](v.Addr())
	if !ok {
		return false
	}
	var kind, role string
	for name, value := range members(object) {
		switch {
		case value[0] != '"':
		case name == "type" && kind == "":
			_ = json.Unmarshal(value, &kind) // The value is a valid string.
		case name == "role" && role == "":
			_ = json.Unmarshal(value, &role)
		}
	}
	return into.Skim(kind, role)
}

// object reads the fields of a JSON object into a struct.
func (f *form) object(v reflect.Value, data []byte) {
	known := f.known.of(v.Type())
	times := make([]int, len(known))
	for name, value := range members(data) {
		field, ok := known[strings.ToLower(name)]
		switch {
		case (!ok || field.name != name) && f.open:
			continue
		case !ok:
			f.refuse(func() (string, string) {
				if _, asks := known["query"]; asks && name == "prompt" { // the name that llm-council has for it
					return "there is no such field", `write "query"`
				}
				return "there is no such field", "remove it, or correct its spelling: see /openapi.yaml"
			}, step{name: name})
			continue
		case field.name != name:
			f.refuse(func() (string, string) {
				return "there is no such field", fmt.Sprintf("write %q", field.name)
			}, step{name: name})
		case times[field.number] == 1:
			f.refuse(func() (string, string) {
				return "the field is there more than once", "give it once"
			}, step{name: name})
		}
		if times[field.number]++; times[field.number] == 1 {
			f.path = append(f.path, step{name: name})
			f.value(v.FieldByIndex(field.index), value)
			f.path = f.path[:len(f.path)-1]
		}
	}
}

// maxList is the most elements of a list that is a field of the outermost object. Sensible requests have far fewer.
const maxList = 1000

// list reads a JSON array into a slice. If the array is longer than maxList, list only counts its elements.
func (f *form) list(v reflect.Value, data []byte) {
	v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	if len(f.path) == 1 {
		name := f.path[0].name
		count := 0
		for range elements(data) {
			count++
		}
		if count > maxList {
			f.refuse(func() (string, string) {
				return fmt.Sprintf("there are %d %s, %d are allowed", count, name, maxList), "send fewer"
			})
			return
		}
	}
	n := 0
	for element := range elements(data) {
		v.Grow(1)
		v.SetLen(n + 1)
		f.path = append(f.path, step{index: n})
		f.value(v.Index(n), element)
		f.path = f.path[:len(f.path)-1]
		n++
	}
}

// refuse adds a problem at the place that is being read, or where the steps lead from there. After maxNamed problems it
// only counts further ones, and does not call the function words to get their text.
func (f *form) refuse(words func() (message, fix string), steps ...step) {
	if f.Full() {
		f.count++
		return
	}
	message, fix := words()
	f.Add(f.place(steps...), message, fix)
}

// place returns the place that is being read, such as "messages[2].role", or where the steps lead from there.
func (f *form) place(steps ...step) string {
	var b strings.Builder
	for _, s := range slices.Concat(f.path, steps) {
		switch {
		case s.name == "":
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
		case b.Len() > 0:
			b.WriteByte('.')
			fallthrough
		default:
			b.WriteString(s.name)
		}
	}
	return b.String()
}

// found returns the kind of a JSON value in words. An error shows it as what the client sent.
func found(data []byte) string {
	names := map[byte]string{'{': "an object", '[': "a list", '"': "a text", 't': "true", 'f': "false"}
	return cmp.Or(names[data[0]], "a number that cannot be used")
}

// wanted returns in words which values fit a type. An error shows it as what the client can send. wanted knows all
// types that occur in a request.
func wanted(t reflect.Type) string {
	types := map[reflect.Type]string{
		reflect.TypeFor[council.Order]():     "one of " + council.OrderChoices,
		reflect.TypeFor[council.OnPartial](): "one of accept or refuse",
		reflect.TypeFor[council.Mode]():      "one of " + council.ModeChoices,
		reflect.TypeFor[council.Orders]():    "one of one or both",
		reflect.TypeFor[council.Exclude]():   "one of family, self or none",
	}
	kinds := map[reflect.Kind]string{
		reflect.Struct: "an object", reflect.Slice: "a list", reflect.Bool: "true or false", reflect.String: "a text",
		reflect.Int: "a whole number of at most 18 digits", reflect.Int64: "a whole number of at most 18 digits",
		reflect.Float64: "a number, such as 0.50",
	}
	if list, ok := reflect.TypeAssert[TextList](reflect.New(t)); ok {
		return list.Wanted()
	}
	return cmp.Or(types[t], kinds[t.Kind()])
}

// members yields the names and values of a valid JSON object.
func members(object []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for rest := bytes.TrimSpace(object[1 : len(object)-1]); len(rest) > 0; {
			var quoted, value []byte
			quoted, rest = cut(rest, ':')
			value, rest = cut(rest, ',')
			name := string(quoted[1 : len(quoted)-1])
			if strings.Contains(name, `\`) {
				_ = json.Unmarshal(quoted, &name) // The name is a valid string.
			}
			if !yield(name, value) {
				return
			}
		}
	}
}

// elements yields the elements of a valid JSON array.
func elements(array []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for rest := bytes.TrimSpace(array[1 : len(array)-1]); len(rest) > 0; {
			var element []byte
			if element, rest = cut(rest, ','); !yield(element) {
				return
			}
		}
	}
}

// cut splits valid JSON at the first separator outside of strings, objects and arrays. It trims the blanks around the
// part before the separator. If there is no separator, before is all of data.
func cut(data []byte, separator byte) (before, after []byte) {
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			for i++; data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case separator:
			if depth == 0 {
				return bytes.TrimSpace(data[:i]), data[i+1:]
			}
		}
	}
	return bytes.TrimSpace(data), nil
}
