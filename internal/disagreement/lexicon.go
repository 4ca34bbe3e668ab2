package bias

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Lexicon lists the terms of each demographic axis, by the axis's name.
//
// A term is one or more words. It stands for itself in any case, with an English
// possessive ending, and with its last word in a regular English plural (also
// -men, "children" and "wives"); it is never found inside another word. Hyphens,
// dots and underscores make a compound, which is a word of its own: "black-box"
// and "child_process" hold neither "black" nor "child". A term that is a compound
// is found with hyphens and with spaces. Texts are compared as they are: nothing
// is composed or decomposed, and scripts that do not separate words (Chinese,
// Japanese, Thai) are not segmented.
type Lexicon map[string][]string

// DefaultLexicon returns a new copy of CouncilEx's lexicon. Plurals that [Lexicon]
// covers are left out, and some compounds are added that CouncilEx finds by
// searching inside words. "Is disabled" and "are disabled" mostly speak of a
// switch and do not count, so "who is disabled" is a term of its own.
func DefaultLexicon() Lexicon {
	return Lexicon{
		"gender": strings.Fields(`woman female girl mother daughter wife sister feminine she her hers
			man male boy father son husband brother masculine he him his
			gender nonbinary non-binary transgender trans cisgender`),
		"ethnicity": strings.Fields(`black white asian hispanic latino latina latinx african european
			african-american asian-american indigenous native immigrant minority ethnic race racial`),
		"religion": strings.Fields(`christian christianity catholic protestant muslim islam islamic jew jewish
			hindu hinduism buddhist buddhism atheist agnostic religious secular`),
		"age": strings.Fields(`young old elderly senior teen teenager child kid adult aging youth`),
		"ability": append(strings.Fields(`disabled disability blind deaf wheelchair handicapped impaired
			able-bodied neurodiverse autistic`), "who are disabled", "who is disabled"),
	}
}

// otherMeanings lists phrases, of two or more words, in which terms of the default
// lexicon mean something else. They count on no axis unless a lexicon lists them
// as terms. As in a term, the last word may be in the plural.
const otherMeanings = `
	boy scout, game boy, poster boy, whipping boy,
	big brother, brother printer,
	daughter board, daughter card, daughter cell, daughter chromosome, daughter company, daughter element,
	daughter isotope, daughter nuclei, daughter nucleus, daughter nuclide, daughter plant, daughter product,
	father christmas, father of modern, father time, founding father,
	female adapter, female cone, female connector, female coupling, female end, female fitting, female flower,
	female header, female jack, female pin, female plant, female plug, female socket, female terminal, female thread,
	feminine adjective, feminine article, feminine ending, feminine form, feminine noun, feminine plural,
	feminine singular, masculine adjective, masculine article, masculine ending, masculine form, masculine noun,
	masculine plural, masculine singular,
	gender agreement, gender changer, gender of the noun, grammatical gender, noun gender,
	male adapter, male and female connector, male cone, male connector, male coupling, male end, male fitting,
	male flower, male header, male jack, male or female connector, male pin, male plant, male plug, male terminal,
	male thread, male to female adapter, male to female cable, male to male,
	best man, con man, dead man switch, every man for himself, extra man, iron man, isle of man, last man, man advantage,
	man cave, man command, man day, man down, man entry, man hour, man in the middle, man made, man month, man of straw,
	man of the match, man overboard, man page, man power, man section, man to man, man up, middle man, no man land,
	right hand man, spider man, straw man, third man,
	mother board, mother cell, mother culture, mother dough, mother earth, mother liquor, mother lode, mother nature,
	mother of all, mother of pearl, mother of vinegar, mother plant, mother rock, mother sauce, mother ship,
	mother tongue, mother yeast, old wife tale, old wives tale,
	sister chromatid, sister city, sister company, sister group, sister paper, sister project, sister publication,
	sister ship, sister site, sister species, sister taxa, sister taxon,
	son of a gun,
	cis and trans, cis or trans, cis trans, trans alkene, trans am, trans atlantic, trans bond, trans configuration,
	trans double bond, trans fat, trans fatty, trans form, trans isomer, trans pacific, trans siberian,

	african daisy, african elephant, african grey, african plate, african savanna, african union, african violet,
	asian cuisine, asian cup, asian dish, asian elephant, asian food, asian green, asian grocery, asian hornet,
	asian market, asian noodle, asian option, asian pear, asian supermarket,
	black aphid, black art, black as, black background, black bass, black bean, black bear, black belt, black bishop,
	black board, black body, black border, black box, black bread, black cable, black car, black cardamom, black cat,
	black cherry, black cloth, black coffee, black color, black colour, black comedy, black cow, black cumin,
	black currant, black death, black diamond, black dog, black dot, black dress, black dye, black eye, black film,
	black flag, black fly, black forest, black friday, black frost, black garlic, black gold, black gram,
	black hat, black hole, black humor, black humour, black ice, black ink, black iron, black jacket, black key,
	black king, black knight, black lead, black leather, black lentil, black letter, black level, black light, black line,
	black list, black locust, black magic, black mark, black marker, black market, black mold, black mould, black mulch,
	black mustard, black node, black oak, black olive, black or white, black out, black oxide, black paint, black paper,
	black pawn, black pen, black pepper, black peppercorn, black piece, black pipe, black pixel, black plastic,
	black point, black powder, black probe, black pudding, black queen, black residue, black rhino, black rice,
	black rook, black rot, black run, black salt, black sand, black screen, black sea, black sesame, black sheep,
	black shirt, black smoke, black soil, black soot, black spot, black spruce, black square, black stone, black suit,
	black swan, black tape, black tar, black tea, black terminal, black text, black tie, black to move, black treacle,
	black truffle, black tulip, black vinegar, black walnut, black water, black widow, black willow, black wire,
	black and white, go black, goes black, in the black, jet black, matte black, pitch black, red and black, red or black,
	turn black, turned black, turns black, went black,
	european beech, european call, european central bank, european champion, european championship, european city,
	european commission, european council, european country, european court, european cup, european data protection,
	european directive, european economic area, european football, european hornet, european larch, european law,
	european market, european medicines agency, european option, european parliament, european patent, european plate,
	european plug, european put, european regulation, european robin, european route, european size,
	european space agency, european standard, european starling, european style, european tour, european union,
	indigenous bacteria, indigenous bacterium, indigenous plant, indigenous species, indigenous tree, indigenous yeast,
	a minority of, in the minority, minority allele, minority carrier, minority class, minority government,
	minority interest, minority investment, minority investor, minority label, minority leader, minority opinion,
	minority owner, minority partner, minority party, minority position, minority report, minority sample,
	minority shareholder, minority stake, minority vote, small minority, synthetic minority, tiny minority,
	cloud native, digital native, kubernetes native, native advertising, native api, native app, native application,
	native array, native bee, native binary, native build, native call, native client, native code, native compiler,
	native component, native contact, native currency, native data type, native driver, native executable, native file,
	native flora, native flower, native format, native function, native grass, native habitat, native heap, native image,
	native implementation, native integration, native interface, native language, native library, native linux,
	native machine code, native memory, native method, native mode, native module, native oxide, native package,
	native performance, native plant, native plugin, native pollinator, native protein, native query, native range,
	native resolution, native sdk, native shrub, native speaker, native species, native speed, native state,
	native structure, native support, native thread, native to, native token, native tool, native tree, native type,
	native ui, native vlan, native widget, native wildflower, native woodland, react native,
	after the race, arms race, ball race, bearing race, before the race, big race, bike race, boat race, car race,
	championship race, cross country race, cycle race, data race, drag race, during the race, end of the race,
	finish the race, first race, foot race, goal race, horse race, human race, inner race, last race, leadership race,
	long race, lose the race, main race, motor race, next race, outer race, presidential race, race against the clock,
	race against time, race begins, race between, race bib, race bike, race calendar, race car, race category,
	race condition, race course, race day, race detector, race director, race distance, race effort, race engineer,
	race entry, race fuel, race goal, race hazard, race horse, race leader, race marshal, race morning, race number,
	race official, race organiser, race organizer, race pace, race plan, race report, race result, race ring, race season,
	race shoe, race simulation, race start, race strategy, race time, race to the bottom, race track, race week,
	race weekend, race weight, race window, race winner, race with, rat race, relay race, road race, run the race,
	sack race, short race, signal race, space race, sprint race, start of the race, target race, title race, trail race,
	tune up race, win the race, wins the race, won the race,
	beat the white, blue and white, bright white, cool white, egg white, green and white, off white, plain white,
	pure white, red and white, snow white, turn white, turned white, turns white, warm white, wash white, whisk the white,
	white and black, white area, white ash, white asparagus, white background, white balance, white bean, white belt,
	white bishop, white blood, white board, white border, white box, white bread, white cabbage, white cell, white cheese,
	white chocolate, white christmas, white clay, white cloth, white clover, white collar, white color, white colour,
	white crust, white dot, white dwarf, white elephant, white fat, white fish, white flag, white flesh, white flour,
	white flower, white fly, white foam, white fur, white gas, white gaussian noise, white glove, white glue, white gold,
	white goods, white hat, white heat, white hot, white house, white key, white king, white knight, white label,
	white lead, white lie, white light, white line, white list, white marble, white margin, white matter, white meat,
	white miso, white mold, white mould, white mulberry, white mushroom, white mustard, white noise, white oak,
	white of the eye, white onion, white or black, white out, white page, white paint, white paper, white part,
	white patch, white pawn, white pebble, white pepper, white piece, white pine, white pith, white pixel, white point,
	white potato, white powder, white queen, white residue, white rice, white rook, white root, white rose, white rot,
	white rum, white sand, white sauce, white screen, white sea, white sesame, white shark, white sheet, white shirt,
	white smoke, white snow, white space, white spirit, white spot, white square, white stripe, white stuff, white sugar,
	white tea, white test, white text, white tie, white tile, white to move, white toast, white towel, white triangle,
	white vest, white vinegar, white wall, white water, white wax, white willow, white wine, white wire,

	catholic interest, catholic taste, christian dior, hans christian, hindu arabic, hindu kush,
	agnostic learning, agnostic of, agnostic to, cloud agnostic, database agnostic, device agnostic, framework agnostic,
	hardware agnostic, language agnostic, location agnostic, model agnostic, platform agnostic, protocol agnostic,
	provider agnostic, source agnostic, technology agnostic, tool agnostic, vendor agnostic,
	religious about, secular acceleration, secular bear, secular bull, secular change, secular decline, secular equation,
	secular growth, secular perturbation, secular shift, secular stagnation, secular term, secular trend,
	secular variation,

	adult bee, adult beetle, adult bird, adult butterfly, adult cat, adult dog, adult fish, adult fly, adult form,
	adult frog, adult hen, adult insect, adult moth, adult plant, adult salmon, adult size, adult slug, adult stage,
	adult stem cell, adult teeth, adult tooth, adult tree, adult wasp, adult weevil,
	aging alloy, aging barrel, aging battery, aging beef, aging bit, aging boiler, aging bridge, aging bucket,
	aging building, aging cellar, aging cheese, aging codebase, aging equipment, aging fleet, aging hardware,
	aging infrastructure, aging meat, aging mechanism, aging pipe, aging policy, aging report, aging roof, aging room,
	aging schedule, aging server, aging software, aging steel, aging system, aging test, aging time, aging timer,
	aging wine, barrel aging, bottle aging, dry aging, mac address aging, mac aging, priority aging, receivables aging,
	software aging,
	child block, child category, child class, child commit, child component, child container,
	child context, child dataset, child directory, child document, child domain, child element, child entity, child entry,
	child exits, child folder, child frame, child item, child job, child key, child layout, child logger, child menu,
	child module, child node, child object, child page, child partition, child pid, child play, child pointer,
	child process, child record, child resource, child route, child row, child scope, child selector, child shell,
	child span, child table, child task, child template, child term, child theme, child thread, child view, child widget,
	child window, child workflow, child zone, children array, children of a node, children of the node, children prop,
	left child, nth child, orphaned child, parent and child, parent child,
	parent or child, parent to child, right child, zombie child,
	kid glove, kid leather, kid you not,
	as old as, days old, hours old, minutes old, months old, old address, old api, old backup, old battery, old bed,
	old boiler, old book, old branch, old bread, old buffer, old build, old building, old bulb, old cable, old cache,
	old car, old case, old caulk, old certificate, old client, old cloth, old clothes, old code, old coin, old column,
	old commit, old compost, old computer, old config, old configuration, old connection, old container, old contract,
	old copy, old data, old device, old directory, old disk, old drive, old driver, old english, old entry, old fashioned,
	old file, old film, old flower, old folder, old format, old furniture, old gen, old generation, old glue, old grout,
	old growth, old guard, old habit, old hardware, old house, old image, old index, old kernel, old key, old laptop,
	old law, old leaf, old leaves, old lease, old link, old log, old machine, old map, old method, old milk, old model,
	old mulch, old name, old news, old newspaper, old object, old oil, old one, old package, old page, old paint,
	old part, old password, old path, old phone, old photo, old pipe, old pod, old process, old rag, old recipe,
	old record, old release, old root, old route, old row, old rule, old schema, old school, old secret, old server,
	old session, old shoe, old snapshot, old software, old soil, old state, old statute, old stem, old stock, old system,
	old table, old thread, old timber, old tire, old token, old towel, old town, old tree, old tyre, old url, old value,
	old version, old way, old wood, old world, seconds old, weeks old,
	more senior, most senior, senior analyst, senior architect, senior associate, senior author, senior barrister,
	senior bond, senior chef, senior claim, senior clerk, senior colleague, senior counsel, senior creditor, senior debt,
	senior developer, senior doctor, senior editor, senior engineer, senior executive, senior judge, senior lawyer,
	senior leader, senior leadership, senior lecturer, senior level, senior lien, senior loan, senior management,
	senior manager, senior note, senior officer, senior official, senior partner, senior position, senior programmer,
	senior reviewer, senior role, senior secured, senior side, senior squad, senior staff, senior stakeholder,
	senior team, senior technician, senior to, senior tranche, senior year,
	fountain of youth, youth hostel,
	young branch, young bulb, young carrot, young cheese, young collection, young company, young cutting, young firm,
	young foliage, young garlic, young gen, young generation collection, young generation heap, young ginger, young green,
	young growth, young inequality, young language, young leaf, young leaves, young modulus, young object, young plant,
	young potato, young project, young root, young seedling, young shoot, young spinach, young star, young startup,
	young stem, young tableau, young tree, young vine, young weed, young wine, young wood,

	big blind, blackout blind, blind alley, blind assessment, blind assessor, blind auction, blind audition, blind bake,
	blind baking, blind bend, blind carbon copy, blind comparison, blind copy, blind cord, blind corner, blind curve,
	blind date, blind evaluation, blind experiment, blind eye, blind faith, blind flange, blind hole, blind injection,
	blind luck, blind nut, blind obedience, blind oncoming, blind pass, blind peer, blind review, blind rivet, blind seam,
	blind side, blind signature, blind slat, blind spot, blind sql, blind ssrf, blind study, blind summit, blind taste,
	blind tasting, blind test, blind testing, blind to, blind transfer, blind trial, blind trust, blind write, blind xss,
	color blind, colour blind, double blind, roller blind, roman blind, single blind, small blind, triple blind,
	venetian blind, vertical blind, window blind,
	deaf ear, tone deaf,
	are disabled, be disabled, been disabled, being disabled, disabled account, disabled after, disabled at,
	disabled attribute, disabled automatically, disabled before, disabled button, disabled by, disabled checkbox,
	disabled completely, disabled control, disabled during, disabled entirely, disabled feature, disabled field,
	disabled flag, disabled for, disabled globally, disabled if, disabled in, disabled input, disabled interrupt,
	disabled it, disabled link, disabled module, disabled on, disabled option, disabled permanently, disabled plugin,
	disabled port, disabled rule, disabled service, disabled state, disabled temporarily, disabled the, disabled them,
	disabled this, disabled through, disabled under, disabled unless, disabled until, disabled via, disabled when,
	disabled while, disabled with, enabled and disabled, enabled or disabled, get disabled, gets disabled, is disabled,
	left disabled, remain disabled, remains disabled, stay disabled, stays disabled, was disabled, were disabled,
	impaired asset, impaired drainage, impaired driver, impaired driving, impaired function, impaired glucose,
	impaired goodwill, impaired healing, impaired judgement, impaired judgment, impaired loan, impaired performance,
	impaired water
`

// otherPhrases indexes otherMeanings.
//
//nolint:gochecknoglobals // a constant table, made once
var otherPhrases = sync.OnceValue(func() lexiconIndex {
	var phrases []lexiconPhrase
	for text := range strings.SplitSeq(otherMeanings, ",") {
		phrases = append(phrases, lexiconPhrase{words: lexiconWords(text, nil)})
	}
	return newLexiconIndex(phrases)
})

// ParseLexicon reads a lexicon from a JSON object whose keys are the names of the
// axes and whose values are arrays of terms. It folds the terms, separates their
// words by single spaces or hyphens, sorts them and drops repetitions. The error
// names every problem up to the first that is not JSON: an axis that stands twice,
// has no name or no terms, a term that is no string or holds no word.
func ParseLexicon(data []byte) (Lexicon, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	start, err := dec.Token()
	if err != nil {
		return nil, lexiconSyntax(err)
	}
	if start != json.Delim('{') {
		return nil, errors.New("the lexicon is not a JSON object of axes and their terms")
	}
	lexicon := Lexicon{}
	var problems []error
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, errors.Join(append(problems, lexiconSyntax(err))...)
		}
		var value any
		if err := dec.Decode(&value); err != nil {
			return nil, errors.Join(append(problems, lexiconSyntax(err))...)
		}
		axis := strings.TrimSpace(key.(string))
		if axis == "" {
			problems = append(problems, errors.New("an axis has no name"))
		} else if _, ok := lexicon[axis]; ok {
			problems = append(problems, fmt.Errorf("axis %q stands twice", axis))
		}
		terms, wrong := parseTerms(axis, value)
		lexicon[axis] = terms
		problems = append(problems, wrong...)
	}
	if len(lexicon) == 0 {
		problems = append(problems, errors.New("the lexicon has no axis"))
	}
	if _, err := dec.Token(); err != nil { // the closing brace
		problems = append(problems, lexiconSyntax(err))
	} else if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		problems = append(problems, errors.New("something stands behind the lexicon's JSON object"))
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return lexicon, nil
}

func lexiconSyntax(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("reading the lexicon's JSON: %w", err)
}

func parseTerms(axis string, value any) (terms []string, problems []error) {
	list, ok := value.([]any)
	if !ok {
		return nil, []error{fmt.Errorf("axis %q: its value is not an array of terms", axis)}
	}
	if len(list) == 0 {
		return nil, []error{fmt.Errorf("axis %q: it has no terms", axis)}
	}
	for i, v := range list {
		text, ok := v.(string)
		term := normalTerm(text)
		switch {
		case !ok:
			problems = append(problems, fmt.Errorf("axis %q: term %d is not a string", axis, i+1))
		case term == "":
			problems = append(problems, fmt.Errorf("axis %q: term %d (%q) holds no word", axis, i+1, text))
		}
		terms = append(terms, term)
	}
	slices.Sort(terms)
	return slices.Compact(terms), problems
}

// normalTerm returns the words of a term as a lexicon holds them.
func normalTerm(text string) string {
	var b strings.Builder
	for i, w := range lexiconWords(text, nil) {
		switch {
		case i == 0:
		case w.joined:
			b.WriteByte('-')
		default:
			b.WriteByte(' ')
		}
		b.WriteString(w.text)
	}
	return b.String()
}

// lexiconWord is one word of a text, or one part of a compound.
type lexiconWord struct {
	text   string // folded
	joined bool   // to the word before it, as in "able-bodied"
}

// lexiconWords returns the words of a text: runs of letters, marks and digits
// with single apostrophes inside, in lower case and without an English possessive
// ending. It ends early, without any, where stop, unless nil, says so.
func lexiconWords(text string, stop func() bool) []lexiconWord {
	var folded strings.Builder
	folded.Grow(len(text))
	var since pause
	for _, r := range text {
		if since.ended(stop) {
			return nil
		}
		if r = foldRune(r); r >= 0 {
			folded.WriteRune(r)
		}
	}
	text = folded.String()
	words := make([]lexiconWord, 0, len(text)/5)
	start, end := -1, 0 // of the present word, -1 outside; of the last one
	finish := func(i int) {
		words = append(words, lexiconWord{
			text:   strings.TrimSuffix(text[start:i], "'s"),
			joined: len(words) > 0 && joins(text[end:start]),
		})
		start, end = -1, i
	}
	for i, r := range text {
		if since.ended(stop) {
			return nil
		}
		switch {
		case isWordRune(r):
			if start < 0 {
				start = i
			}
		case start < 0:
		case r == '\'':
			if next, _ := utf8.DecodeRuneInString(text[i+1:]); !isWordRune(next) {
				finish(i)
			}
		default:
			finish(i)
		}
	}
	if start >= 0 {
		finish(len(text))
	}
	return words
}

func isWordRune(r rune) bool {
	if r < utf8.RuneSelf {
		return 'a' <= r && r <= 'z' || '0' <= r && r <= '9'
	}
	return unicode.In(r, unicode.Letter, unicode.Mark, unicode.Digit)
}

// joins reports whether what stands between two words makes them a compound.
func joins(gap string) bool {
	switch gap {
	case "-", "\u2010", "\u2011", ".", "_": // hyphens; file names, identifiers
		return true
	}
	return false
}

// foldRune makes the cases of a letter, and the two apostrophes, equal.
func foldRune(r rune) rune {
	switch {
	case 'A' <= r && r <= 'Z':
		return r + 'a' - 'A'
	case r < utf8.RuneSelf:
		return r
	case r == '’':
		return '\''
	}
	return unicode.ToLower(unicode.ToUpper(r)) // the two sigmas have one upper case
}

// singulars returns the words that word may be an English plural of.
func singulars(word string) []string {
	switch word {
	case "children":
		return []string{"child"}
	case "wives":
		return []string{"wife"}
	}
	if stem, ok := strings.CutSuffix(word, "men"); ok {
		return []string{stem + "man"}
	}
	stem, ok := strings.CutSuffix(word, "s")
	if !ok {
		return nil
	}
	forms := []string{stem}
	if stem, ok := strings.CutSuffix(word, "es"); ok {
		forms = append(forms, stem)
	}
	if stem, ok := strings.CutSuffix(word, "ies"); ok {
		forms = append(forms, stem+"y")
	}
	return forms
}

// lexiconPhrase is some words in a row.
type lexiconPhrase struct {
	words []lexiconWord
	term  string // as it stands in the lexicon
	axis  int    // in lexiconMatcher.axes
}

// lexiconIndex holds phrases by their first words, the longest first.
type lexiconIndex map[string][]lexiconPhrase

func newLexiconIndex(phrases []lexiconPhrase) lexiconIndex {
	slices.SortStableFunc(phrases, func(a, b lexiconPhrase) int { return len(b.words) - len(a.words) })
	x := lexiconIndex{}
	for _, p := range phrases {
		if len(p.words) > 0 {
			x[p.words[0].text] = append(x[p.words[0].text], p)
		}
	}
	return x
}

// at returns the phrases that stand at the start of words, the longest first.
func (x lexiconIndex) at(words []lexiconWord) []lexiconPhrase {
	var found []lexiconPhrase
	for _, p := range x[words[0].text] {
		if p.matches(words) {
			found = append(found, p)
		}
	}
	for _, singular := range singulars(words[0].text) {
		for _, p := range x[singular] {
			if len(p.words) == 1 {
				found = append(found, p)
			}
		}
	}
	return found
}

// matches reports whether the phrase, whose first word is that of words, stands
// there.
func (p lexiconPhrase) matches(words []lexiconWord) bool {
	last := len(p.words) - 1
	if last >= len(words) {
		return false
	}
	for i := 1; i < last; i++ {
		if words[i].text != p.words[i].text {
			return false
		}
	}
	word, want := words[last].text, p.words[last].text
	// A plural begins like its singular, and hundreds of phrases begin with "black".
	return last == 0 || word == want || word[0] == want[0] && slices.Contains(singulars(word), want)
}

// lexiconMatcher finds the terms of a lexicon in texts.
type lexiconMatcher struct {
	axes  []string // sorted
	terms lexiconIndex
}

func newLexiconMatcher(lexicon Lexicon) lexiconMatcher {
	axes := slices.Sorted(maps.Keys(lexicon))
	var phrases []lexiconPhrase
	for i, axis := range axes {
		for _, term := range lexicon[axis] {
			phrases = append(phrases, lexiconPhrase{lexiconWords(term, nil), term, i})
		}
	}
	return lexiconMatcher{axes, newLexiconIndex(phrases)}
}

// mentioned returns the terms that a text holds anywhere, in compounds and in
// phrases that mean something else too: who asks about race conditions will be
// told of races.
func (m lexiconMatcher) mentioned(words []lexiconWord) map[string]bool {
	terms := map[string]bool{}
	for i := range words {
		for _, p := range m.terms.at(words[i:]) {
			terms[p.term] = true
		}
	}
	return terms
}

// coverage is what a text holds of one axis.
type coverage struct {
	terms map[string]int // how often each stands there
	// hits are the occurrences that are compared between texts. All words for
	// particular persons (see person) of one gender count once.
	hits    int
	persons [2]bool // by gender: a word for a particular person stands there
}

// hits returns for each axis what a text holds of it, without the terms to ignore.
// Of phrases that overlap, the first counts, and of those that start together the
// longest. It gives up, with less than the text holds, when ctx is done.
func (m lexiconMatcher) hits(ctx context.Context, words []lexiconWord, ignore map[string]bool) []coverage {
	found := make([]coverage, len(m.axes))
	for i := range found {
		found[i].terms = map[string]int{}
	}
	others := otherPhrases()
	taken := make([]int, len(m.axes)) // by axis, the end of the last phrase
	var since pause
	for i := range words {
		if since.ended(stopped(ctx)) {
			return found
		}
		if words[i].joined {
			continue
		}
		whole := func(p lexiconPhrase) bool { end := i + len(p.words); return end == len(words) || !words[end].joined }
		other := 0 // words that mean something else
		for _, p := range others[words[i].text] {
			if p.matches(words[i:]) && whole(p) {
				other = len(p.words)
				break
			}
		}
		for _, p := range m.terms.at(words[i:]) {
			if whole(p) && len(p.words) >= other && taken[p.axis] <= i {
				taken[p.axis] = i + len(p.words)
				if !ignore[p.term] {
					found[p.axis].add(p.term, person(words, i))
				}
			}
		}
		for axis := range taken {
			taken[axis] = max(taken[axis], i+other)
		}
	}
	return found
}

// add counts one occurrence of a term, which stands for a particular person of that
// gender, -1 for none.
func (c *coverage) add(term string, person int) {
	c.terms[term]++
	if person < 0 {
		c.hits++
	} else if !c.persons[person] {
		c.persons[person] = true
		c.hits++
	}
}

// person returns 0 where a word stands for a particular woman or girl, 1 for a man or
// boy or a person of no gender, and -1 otherwise. These are pronouns, and a noun for
// one person behind a word that picks one out: "my mother", "the old man". A text
// with one such person in it names that person throughout; that is its grammar and
// no coverage. "Women", "a woman" and "the elderly" are coverage.
func person(words []lexiconWord, i int) int {
	gender := 1
	switch words[i].text {
	case "she", "her", "hers":
		return 0
	case "he", "him", "his":
		return 1
	case "woman", "girl", "mother", "daughter", "wife", "sister":
		gender = 0
	case "man", "boy", "father", "son", "husband", "brother", "child", "kid", "teenager":
	case "old", "young":
		if i+1 == len(words) || !slices.Contains([]string{"woman", "girl", "man", "boy", "child"}, words[i+1].text) {
			return -1
		}
	default:
		return -1
	}
	for k := i - 1; k >= max(0, i-2); k-- {
		switch words[k].text {
		case "my", "your", "his", "her", "its", "our", "their", "the", "this", "that":
			return gender
		case "a", "an":
			return -1
		}
	}
	return -1
}
