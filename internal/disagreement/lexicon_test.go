package disagreement

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

func TestSplit(t *testing.T) {
	tests := []struct {
		text string
		want string // words, "+" before those that are joined to the one before
	}{
		{"", ""},
		{" -- ... '' ", ""},
		{"Women, men.", "women men"},
		{"don't can’t O'Neil's women's boys' 'quoted'", "don't can't o'neil women boys quoted"},
		{"able-bodied black\u2010box non\u2011native", "able +bodied black +box non +native"},
		{"child_process child.pid he/she either - or", "child +process child +pid he she either or"},
		{"-x _x_ .x", "x x x"},
		{"3.5 km² 42nd", "3 +5 km 42nd"},
		{"ÉCOLE Straße ΓΥΝΑΙΚΟΣ γυναικός", "école straße γυναικοσ γυναικόσ"},
		{"e\u0301cole हिन्दू", "e\u0301cole हिन्दू"},
		{"bad\xffbyte", "bad byte"},
		{"女性と男性", "女性と男性"},
	}
	for _, tt := range tests {
		var got []string
		for _, w := range split(tt.text, nil) {
			if w.joined {
				w.text = "+" + w.text
			}
			got = append(got, w.text)
		}
		if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%q (-want +got)\n%s", tt.text, diff)
		}
	}
}

func TestFoldingIsStable(t *testing.T) {
	for r := range rune(unicode.MaxRune + 1) {
		if folded := foldRune(r); foldRune(folded) != folded || foldRune(unicode.ToUpper(r)) != folded {
			t.Errorf("%q folds to %q, and that to %q, its upper case to %q", r, folded, foldRune(folded), foldRune(unicode.ToUpper(r)))
		}
	}
}

func TestHits(t *testing.T) {
	builtIn := DefaultLexicon()
	custom := Lexicon{Axes: Axes{
		"people": {"woman", "man", "girl", "wife", "minority", "able-bodied", "child process", "trans woman", "жінка", "témoin"},
		"trans":  {"trans", "kids"},
	}}
	german := Lexicon{Language: "de", Axes: Axes{"age": {"kind", "alte"}, "gender": {"man", "mann"}, "ethnicity": {"race"}}}
	tests := []struct {
		name     string
		lexicon  Lexicon
		question string
		text     string
		want     string
	}{
		{"inside words", builtIn, "", "The theme: human, mankind, shepherd, ageing, kidney, blackboard, whiteness, grace, manage.", ""},
		{"any case", builtIn, "", "WOMEN and Women, DEAF", "ability:deaf gender:woman*2"},
		{
			"plurals", custom, "",
			"women, men, girls, wives, minorities",
			"people:girl people:man people:minority people:wife people:woman",
		},
		{"possessives", custom, "", "the woman's, the girls', the men’s", "people:girl people:man people:woman"},
		{"exact before singular", builtIn, "", "hers", "gender:hers"},
		{
			"compounds", builtIn, "",
			"able-bodied, able bodied, Non-Binary, African-Americans",
			"ability:able-bodied*2 ethnicity:african-american gender:non-binary",
		},
		{"other compounds", builtIn, "", "black-box, old-fashioned, five-year-old, child_process, node.child, man-in-the-middle", ""},
		{"pronouns behind a slash", builtIn, "", "he/she", "gender:he gender:she"},
		{"other meanings", builtIn, "", "A race condition in the child process, native code, a black box.", ""},
		{"other meanings in the plural", builtIn, "", "Race conditions, data races, black boxes, child processes, arms races.", ""},
		{"overlapping other meanings", builtIn, "", "A data race condition, black and white paint.", ""},
		{
			"beside other meanings", builtIn, "",
			"The race condition concerns race, and the black box Black women.",
			"ethnicity:black ethnicity:race gender:woman",
		},
		{
			"switches and people", builtIn, "",
			"The rule is disabled. Staff who are disabled and disabled guests",
			"ability:disabled ability:who are disabled",
		},
		{"a term that has other meanings", custom, "", "A child process.", "people:child process"},
		{"the longest on an axis", custom, "", "A trans woman and a woman.", "people:trans woman people:woman trans:trans"},
		{"a plural term has no singular", custom, "", "a kid, kids", "trans:kids"},
		{"other scripts", custom, "", "Жінка і ЖІНКА. Un témoin, deux Témoins.", "people:témoin*2 people:жінка*2"},
		{"decomposed letters differ", custom, "", "Un te\u0301moin.", ""},
		{"asked", builtIn, "Do women, or an ABLE BODIED man, get it?", "A woman, able-bodied men, girls", "gender:girl"},
		{"asked in another meaning", builtIn, "Is this a race condition of the child_process?", "The race, a child, an old one", ""},
		{
			"another language", german, "", "Ein Kind, Kinds, MANN. The man in a race condition.",
			"age:kind ethnicity:race gender:man gender:mann",
		},
		{"not asked", builtIn, "Is this a racket?", "Her race", "ethnicity:race gender:her"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := NewMatcher(tt.lexicon)
			found := m.hits(t.Context(), split(tt.text, nil), m.mentioned(split(tt.question, nil)))
			var got []string
			for i, axis := range m.axes {
				for _, term := range slices.Sorted(maps.Keys(found[i].terms)) {
					hit := axis + ":" + term
					if n := found[i].terms[term]; n > 1 {
						hit += "*" + string(rune('0'+n))
					}
					got = append(got, hit)
				}
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestPersons holds which words count as hits: words for one particular person once for
// each gender, all others each time.
func TestPersons(t *testing.T) {
	m := NewMatcher(DefaultLexicon())
	for _, tc := range []struct {
		text        string
		gender, age int
	}{
		{"He took his coat, and he left. She saw him and his hat.", 2, 0},
		{"My mother and her sister told her.", 1, 0},
		{"His old father and your brother.", 1, 1},
		{"A mother is asked where a father is not; mothers, fathers.", 4, 0},
		{"Women, a woman, the women, their wives.", 4, 0},
		{"The girl ran, the girl fell, that tall girl rose.", 1, 0},
		{"The old man, this old man, the young boy.", 1, 1},
		{"The old and the young, the elderly, old people.", 0, 4},
		{"The child and our child. A child of the house. Children.", 0, 3},
		{"By the a man.", 1, 0},
		{"old", 0, 1},
	} {
		found := m.hits(t.Context(), split(tc.text, nil), nil)
		if got := found[slices.Index(m.axes, "gender")].hits; got != tc.gender {
			t.Errorf("%s: %d hits on gender, want %d", tc.text, got, tc.gender)
		}
		if got := found[slices.Index(m.axes, "age")].hits; got != tc.age {
			t.Errorf("%s: %d hits on age, want %d", tc.text, got, tc.age)
		}
	}
}

// TestOtherMeanings keeps the list free of entries that do nothing.
func TestOtherMeanings(t *testing.T) {
	m := NewMatcher(DefaultLexicon())
	seen := map[string]bool{}
	for text := range strings.SplitSeq(otherMeanings, ",") {
		text = strings.TrimSpace(text)
		words := split(text, nil)
		switch {
		case normalTerm(text) != text:
			t.Errorf("%q is found as %q", text, normalTerm(text))
		case seen[text]:
			t.Errorf("%q is listed twice", text)
		case len(words) < 2:
			t.Errorf("%q is one word", text)
		case len(m.mentioned(words)) == 0:
			t.Errorf("%q holds no term", text)
		}
		seen[text] = true
		for axis, found := range m.hits(t.Context(), words, nil) {
			if len(found.terms) > 0 {
				t.Errorf("%q counts as %s %v", text, m.axes[axis], found.terms)
			}
		}
	}
}

func TestDefaultLexicon(t *testing.T) {
	data, err := json.Marshal(DefaultLexicon())
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseLexicon(data)
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultLexicon()
	for _, terms := range want.Axes {
		slices.Sort(terms)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("read back (-want +got)\n%s", diff)
	}
}

func TestParseLexicon(t *testing.T) {
	const axes = `{" class ": ["Working  Class", "BOSS's", "blue–collar", "self-MADE", "boss"], "place": ["Zürich"]}`
	want := Axes{"class": {"blue collar", "boss", "self-made", "working class"}, "place": {"zürich"}}
	// The version is Python's hashlib.sha256 over the axes as json.dumps writes them without blanks.
	const made = "sha256:fac862f547ac"
	for _, tt := range []struct {
		data string
		want Lexicon
	}{
		{axes, Lexicon{Version: made, Axes: want}},
		{`{"axes": ` + axes + `}`, Lexicon{Version: made, Axes: want}},
		{`{"version": "acme-3", "axes": ` + axes + `, "language": "de", "extend": false}`, Lexicon{"de", "acme-3", want}},
		{`{"axes": ["a list"], "version": ["an axis"]}`, Lexicon{"", "sha256:7504f74cf79d", Axes{"axes": {"a list"}, "version": {"an axis"}}}},
	} {
		got, err := ParseLexicon([]byte(tt.data))
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%s: error %v (-want +got)\n%s", tt.data, err, diff)
		}
	}
}

// A lexicon that extends adds terms to axes of the built-in one, and axes.
func TestParseLexiconExtends(t *testing.T) {
	for version, want := range map[string]string{`, "version": "acme-3"`: "councild-1+acme-3", "": "councild-1+sha256:d336b83499c8"} {
		got, err := ParseLexicon([]byte(`{"extend": true` + version + `, "axes": {"age": ["Pensioner", "old"], "class": ["worker"]}}`))
		if err != nil {
			t.Fatal(err)
		}
		builtIn := DefaultLexicon()
		if got.Language != "en" || got.Version != want || len(got.Axes) != len(builtIn.Axes)+1 {
			t.Errorf("language %q, version %q, %d axes", got.Language, got.Version, len(got.Axes))
		}
		if n := len(builtIn.Axes["age"]); len(got.Axes["age"]) != n+1 || !slices.Contains(got.Axes["age"], "pensioner") {
			t.Errorf("%d terms of age and one more: %q", n, got.Axes["age"])
		}
		if diff := cmp.Diff([]string{"worker"}, got.Axes["class"]); diff != "" {
			t.Error(diff)
		}
		in := farmers()
		in.Matcher = NewMatcher(got)
		if d := Detect(t.Context(), in); d.Lexicon.Version != want || *d.Lexicon.Language != "en" {
			t.Errorf("the result names %+v", d.Lexicon)
		}
	}
}

func TestParseLexiconErrors(t *testing.T) {
	tests := []struct {
		name, data string
		want       []string
	}{
		{"empty file", "", []string{"reading the lexicon's JSON: unexpected EOF"}},
		{"an array", `["woman"]`, []string{"the lexicon is not a JSON object of axes and their terms"}},
		{"null", `null`, []string{"the lexicon is not a JSON object of axes and their terms"}},
		{"no axis", `{}`, []string{"the lexicon has no axis"}},
		{"cut off", `{"a": ["b"]`, []string{"reading the lexicon's JSON: unexpected EOF"}},
		{"not a key", `{1: ["b"]}`, []string{"reading the lexicon's JSON: invalid character '1'"}},
		{"more after it", `{"a": ["b"]} {}`, []string{"there is more after the lexicon's JSON object"}},
		{
			"every problem", `{"": ["x"], "a": [], "b": "x", "c": ["x", 1, "!", null], "d": ["x"], "d": ["y"], "e": null}`,
			[]string{
				`an axis has no name`, `axis "a" has no terms`, `axis "b": the value is not an array of terms`,
				`axis "c": term 2 is not a string`, `axis "c": term 3 ("!") has no word`, `axis "c": term 4 is not a string`,
				`axis "d" is listed twice`, `axis "e": the value is not an array of terms`,
			},
		},
		{"broken JSON", `{"a": [], "b": [}`, []string{`reading the lexicon's JSON: invalid character '}' looking for beginning of value`}},
		{"no axis beside", `{"axes": {}, "version": "1"}`, []string{"the lexicon has no axis"}},
		{
			"every problem of the head",
			`{"axes": {"a": []}, "language": "English", "version": " ", "extend": "yes", "b": ["x"], "axes": {"a": ["x"]}, "extend": true}`,
			[]string{
				`"language" is not a language code: write two lower-case letters, such as "en"`,
				`"version" is not a version: write visible characters, such as "acme-3"`,
				`"extend" is neither true nor false`,
				`"b" is next to "axes": move it into "axes" if it is an axis, or remove it`,
				`"axes" is next to "axes": move it into "axes" if it is an axis, or remove it`,
				`"extend" is listed twice`,
				`"extend" adds to the built-in terms, which are English, and "language" is "English": leave one of them out`,
				`axis "a" has no terms`,
			},
		},
		{
			"extending in another language", `{"axes": {"a": ["x"]}, "language": "de", "extend": true}`,
			[]string{`"extend" adds to the built-in terms, which are English, and "language" is "de": leave one of them out`},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			lexicon, err := ParseLexicon([]byte(tt.data))
			if err == nil || lexicon.Axes != nil {
				t.Fatalf("error %v beside %v", err, lexicon)
			}
			if diff := cmp.Diff(tt.want, strings.Split(err.Error(), "\n")); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func FuzzParseLexicon(f *testing.F) {
	f.Add([]byte(`{"a": ["able-bodied", "Black box"], "b": ["o'neil's", "3.5"]}`))
	f.Add([]byte(`{"a": [], "a": 1} x`))
	f.Add([]byte(`{"language": "en", "version": "1", "extend": true, "axes": {"age": ["old", "Pensioner"]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		lexicon, err := ParseLexicon(data)
		if err != nil {
			if lexicon.Axes != nil {
				t.Fatalf("%v beside the error %v", lexicon, err)
			}
			return
		}
		if lexicon.Version == "" {
			t.Fatal("no version")
		}
		again, err := json.Marshal(lexicon)
		if err != nil {
			t.Fatal(err)
		}
		if same, err := ParseLexicon(again); err != nil || !cmp.Equal(same, lexicon) {
			t.Fatalf("read again from its own JSON: %v, error %v", same, err)
		}
		m := NewMatcher(lexicon)
		for i, axis := range m.axes {
			if len(lexicon.Axes[axis]) == 0 || !slices.IsSorted(lexicon.Axes[axis]) {
				t.Fatalf("axis %q: %q", axis, lexicon.Axes[axis])
			}
			for _, term := range lexicon.Axes[axis] {
				if len(m.hits(t.Context(), split(term, nil), nil)[i].terms) == 0 {
					t.Fatalf("axis %q: term %q is not found in itself", axis, term)
				}
			}
		}
	})
}
