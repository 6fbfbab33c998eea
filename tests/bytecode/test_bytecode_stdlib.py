# ruff: noqa: E501
"""Functions of the standard library do the same with their code decoded and assembled.

Each module is executed twice, once as it is and once converted; the same expressions are tried on both (`m` is the module).
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest

TRIALS = {
    "argparse": """
        m.ArgumentParser(prog='p', usage='u').parse_args(['--x'])
        [(lambda p: (p.add_argument('-a', type=int, default=3), p.add_argument('b', nargs='*'), p.parse_args(['-a', '4', 'q', 'r'])))(m.ArgumentParser(prog='p'))[2]]
        (lambda p: (p.add_argument('--long', choices=['a', 'b'], help='h %(default)s'), p.format_help())[1])(m.ArgumentParser(prog='p', description='d' * 90))
        (lambda p: (p.add_mutually_exclusive_group().add_argument('--y', action='store_true'), p.parse_known_args(['--y', 'z'])))(m.ArgumentParser('q'))
    """,
    "ast": """
        m.literal_eval("{'a': [1, 2.5, -3], b'x': (None, True, 1+2j)}")
        m.literal_eval('f(1)')
        m.dump(m.parse('x = [i for i in range(3) if i]; del x'), indent=2)
        m.unparse(m.parse('async def f(a, *b, c=1, **d):\\n  with a as b, c: yield (a if b else c) + ~d[1:2, ...]\\n  return lambda x: {**x}'))
        m.unparse(m.parse('try:\\n  raise A from b\\nexcept (X, Y) as e: pass\\nelse: assert x, y\\nfinally:\\n  for i in x: break'))
        m.get_docstring(m.parse('"doc"'))
        [type(n).__name__ for n in m.walk(m.parse('a.b(c)[d]'))]
    """,
    "base64": """
        m.b64encode(b'hello world', b'-_'), m.b64decode('aGVsbG8='), m.b32encode(b'abc'), m.b32decode(b'MFRGG===')
        m.b85encode(b'hello there'), m.b85decode(m.b85encode(b'xyz')), m.a85encode(b'hello', wrapcol=3), m.a85decode(m.a85encode(b'hello', adobe=True), adobe=True)
        m.b32decode(b'MFRGG')
        m.b16decode('0a0B')
        m.b85decode(b'"')
    """,
    "bisect": "m.bisect([1, 2, 2, 3], 2), m.bisect_left([1, 2, 2, 3], 2), m.insort([], 1)",
    "calendar": """
        m.TextCalendar(6).formatyear(2024, m=4)
        m.HTMLCalendar().formatmonth(2023, 2)
        m.monthrange(2024, 2), m.isleap(1900), m.leapdays(1990, 2020), m.timegm((2020, 2, 3, 4, 5, 6))
        list(m.Calendar().itermonthdates(2021, 1))[:3], m.Calendar(3).monthdatescalendar(2020, 5)[0]
        m.monthrange(2024, 13)
    """,
    "collections": """
        m.OrderedDict([(1, 2), (3, 4)]).__repr__(), m.Counter('hello world').most_common(3)
        m.Counter(a=3) + m.Counter(a=1, b=2), m.Counter(a=3) - m.Counter(a=1, b=2), m.Counter(a=3) & m.Counter(a=1), -m.Counter(a=-3)
        m.namedtuple('P', 'x y', defaults=[3])(1)._replace(x=5)._asdict()
        m.namedtuple('P', 'x class')
        m.namedtuple('P', 'x class x', rename=True)._fields
        (lambda c: (c.new_child({1: 9})[1], len(c), list(c), c.parents))(m.ChainMap({1: 2}, {3: 4}))
        m.UserList([3, 1, 2])[1:] + [5], m.UserString('abc').upper(), m.UserDict(a=1)['b']
    """,
    "colorsys": "[f(.2, .4, .9) for f in (m.rgb_to_hsv, m.hsv_to_rgb, m.rgb_to_hls, m.hls_to_rgb, m.rgb_to_yiq, m.yiq_to_rgb)]",
    "configparser": """
        (lambda c: (c.read_string('[a]\\nx = 1\\ny: %(x)s2\\n[b]\\nz\\n'), c.sections(), c['a']['y'], c.getint('a', 'x'), c.get('b', 'z')))(m.ConfigParser(allow_no_value=True))
        m.ConfigParser().read_string('x=1')
        m.ConfigParser().get('a', 'b')
        (lambda c: (c.read_dict({'s': {'v': '${t:w}'}, 't': {'w': 'yes'}}), c.getboolean('s', 'v'), c.items('s')))(m.ConfigParser(interpolation=m.ExtendedInterpolation()))
    """,
    "contextlib": """
        [(lambda s: (s.callback(out.append, 1), s.push(lambda *e: out.append(e[0]) or True), s.close(), out)[-1])(m.ExitStack()) for out in ([],)]
        m.contextmanager(lambda: (yield 5))().__enter__()
        m.nullcontext(4).__enter__(), m.closing(open('/dev/null')).__enter__().closed
        (lambda c: c().__exit__(None, None, None))(m.contextmanager(lambda: (yield)))
    """,
    "copy": """
        m.deepcopy({'a': [1, (2, [3])], 'b': {4}}), m.copy([1]), m.deepcopy([(x := []), x])
        (lambda l: l.append(l) or m.deepcopy(l))([1])
        m.copy(sys), m.deepcopy(len)
        m.copy((i for i in ()))
    """,
    "csv": """
        m.Sniffer().sniff('a;b;c\\n1;2;3\\n').delimiter, m.Sniffer().has_header('name,n\\nx,1\\ny,2\\n')
        list(m.DictReader(['a,b', '1,2,3', '4']))
        m.Sniffer().sniff('')
    """,
    "dataclasses": """
        (lambda D: (D(1), D(1) == D(1), D(1) < D(2), hash(D(3)) == hash(D(3)), m.asdict(D(4)), m.astuple(D(5, [6])), m.replace(D(1), x=2), m.fields(D)[0].name))(m.make_dataclass('D', [('x', int), ('y', list, m.field(default_factory=list, hash=False))], order=True, frozen=True))
        m.make_dataclass('D', ['x', ('y', int, 3)], slots=True)(1).__slots__
        m.make_dataclass('D', [('x', int, 3), 'y'])
        m.make_dataclass('D', ['x'], frozen=True)(1).__setattr__('x', 2)
        m.make_dataclass('D', [('x', list, [])])
    """,
    "difflib": """
        list(m.unified_diff('abcd', 'abxd', 'f', 't')), list(m.ndiff(['one\\n', 'two\\n'], ['ore\\n', 'tree\\n']))
        list(m.context_diff('abcd', 'bxcd', lineterm='')), m.get_close_matches('appel', ['ape', 'apple', 'peach'])
        m.SequenceMatcher(None, 'private Thread', 'private volatile Thread').get_opcodes(), m.SequenceMatcher(None, 'ab', 'ba').ratio()
        len(m.HtmlDiff().make_table(['a\\n', 'b\\n'], ['a\\n', 'c\\n'])), m.get_close_matches('a', [], n=0)
    """,
    "email.message": """
        (lambda e: (e.__setitem__('Subject', 'hi'), e.set_payload('text'), e.as_string(), e.get_content_type(), e.keys(), e.get('none', 3)))(m.Message())
        (lambda e: (e.add_header('Content-Disposition', 'attachment', filename='f.txt'), e.get_filename(), e.get_params(header='content-disposition')))(m.Message())
    """,
    "enum": """
        (lambda C: (C.a, C(2), C['b'], list(C), C.a.name, C.a in C, len(C), C.__members__.keys()))(m.Enum('C', 'a b c'))
        (lambda F: (F.a | F.b, ~F.a, F(3), F.a in F(3), bool(F(0))))(m.Flag('F', 'a b c'))
        m.Enum('C', 'a b')(9)
        m.IntEnum('I', {'x': 5}).x + 1
    """,
    "fnmatch": "m.fnmatch('a.py', '*.p?'), m.filter(['a', 'b1', 'c2'], '[!a]*'), m.translate('x[a-c]*?.t[')",
    "fractions": """
        m.Fraction('3/4') + m.Fraction(1, 3), m.Fraction(2.5), m.Fraction('1e-3').limit_denominator(7), m.Fraction(3, 2) ** -2, m.Fraction(7, 3) // 1, divmod(m.Fraction(7, 3), 2)
        m.Fraction(1, 0)
        m.Fraction('x'), hash(m.Fraction(1, 3)), round(m.Fraction(7, 3), 1), m.Fraction(1, 2) < .6
    """,
    "functools": """
        m.reduce(lambda a, b: a + b, [[1], [2]], []), m.partial(int, base=2)('101'), m.cmp_to_key(lambda a, b: b - a)(3) < m.cmp_to_key(lambda a, b: b - a)(2)
        (lambda f: (f.register(int, lambda x: 'i'), f(1), f('a'), f.dispatch(bool)(1)))(m.singledispatch(lambda x: 'o'))
        (lambda f: (f(1), f(1), f.cache_info(), f.cache_clear()))(m.lru_cache(maxsize=2)(lambda x: [x]))
        m.total_ordering(type('T', (), {'__lt__': lambda s, o: True}))() >= 3, m.total_ordering(type('T', (), {}))
        m.wraps(len)(lambda: 0).__name__
    """,
    "gettext": "m.c2py('n==1 ? 0 : n%10>=2 && n%10<=4 ? 1 : 2')(3), m.c2py('n+')",
    "graphlib": """
        list(m.TopologicalSorter({'D': {'B', 'C'}, 'B': {'A'}, 'C': {'A'}, 'A': set()}).static_order())[0::3]
        list(m.TopologicalSorter({'a': {'b'}, 'b': {'a'}}).static_order())
    """,
    "heapq": """
        list(m.merge([1, 4], [2, 3], reverse=False)), list(m.merge('ca', 'db', key=ord, reverse=True)), m.nlargest(2, [3, 1, 2], key=lambda x: -x), m.nsmallest(3, iter('hello'))
    """,
    "html": "m.escape('<a href=\"x\">'), m.unescape('&lt;&#65;&#x42;&notin;&bogus;&#xD800;')",
    "html.parser": "[(setattr(p, 'handle_starttag', lambda t, a: out.append((t, a))), setattr(p, 'handle_data', out.append), p.feed('<a b=\"c&amp;\" d>x<br/>&lt;<!--c--><script>1<2</script>'), p.close(), out) for out in ([],) for p in (m.HTMLParser(),)]",
    "inspect": """
        str(m.signature(lambda a, /, b=1, *c, d, **e: 0)), m.signature(m.signature).parameters.keys(), m.signature(lambda a, *b: 0).bind(1, 2, 3).arguments
        m.signature(lambda a: 0).bind()
        m.getfullargspec(lambda a, b=2, *, c: 0), m.getattr_static(3, 'real') is int.real, m.cleandoc('a\\n   b\\n   c'), m.unwrap(len)
        m.Parameter('1', m.Parameter.KEYWORD_ONLY)
    """,
    "ipaddress": """
        m.ip_address('192.168.0.1').is_private, m.ip_network('10.0.0.0/30').num_addresses, list(m.ip_network('10.0.0.0/30').hosts()), m.ip_address('2001:db8::1').exploded
        list(m.ip_network('10.0.0.0/8').subnets(new_prefix=10)), m.ip_interface('1.2.3.4/24').network, m.summarize_address_range(m.ip_address('1.1.1.0'), m.ip_address('1.1.1.5')).__next__()
        m.ip_address('1.2.3.400')
        m.ip_network('10.0.0.1/8')
        m.collapse_addresses([m.ip_network('1.0.0.0/9'), m.ip_network('1.128.0.0/9')]).__next__()
    """,
    "json.decoder": """
        m.JSONDecoder().decode('{"a": [1, 2.5, null, true, "x\\\\u0041"]}'), m.py_scanstring('ab\\\\n"', 0)
        m.JSONDecoder().decode('[1,')
        m.JSONDecoder().decode('{"a" 1}')
        m.JSONObject(('"k": [3]}', 0), True, m.JSONDecoder().scan_once, None, None)
    """,
    "json.encoder": """
        list(m._make_iterencode({}, m.JSONEncoder().default, m.py_encode_basestring_ascii, '  ', repr, ': ', ',', True, False, False)({'b': [1, 'x'], 'a': None, 'c': 2.5}, 0))
        m.JSONEncoder(indent=1).encode({'é': (1, float('inf'))}), m.JSONEncoder(allow_nan=False).encode(float('nan'))
        m.JSONEncoder().encode(object), m.py_encode_basestring('\\t"')
    """,
    "locale": "m._group('1234567'), m.format_string('%d %s %%', (5, 'x')), m.normalize('de_DE'), m._parse_localename('C')",
    "mimetypes": "m.guess_type('a.tar.gz'), m.guess_extension('text/html'), m.guess_type('data:text/plain;base64,xx'), m.guess_all_extensions('image/jpeg')[:1]",
    "ntpath": "m.join('c:\\\\a', 'b', '..'), m.splitdrive('c:/x'), m.normpath('c:/a/../b'), m.relpath('c:\\\\a\\\\b', 'c:\\\\a\\\\c'), m.commonpath(['c:\\\\a', 'd:\\\\b'])",
    "numbers": "m.Complex.register(int), isinstance(3, m.Number)",
    "opcode": "m.opname[:3]",
    "operator": """
        m.attrgetter('real', 'imag')(3), m.itemgetter(1)([4, 5]), m.methodcaller('split', ',')('a,b'), m.concat([1], [2]), m.countOf([1, 1, 2], 1), m.indexOf('abc', 'z')
    """,
    "optparse": "[(p.add_option('-x', type='int', dest='q', help='h'), p.parse_args(['-x', '3', 'rest']), p.format_help()) for p in (m.OptionParser(prog='z'),)]",
    "pickle": """
        m._loads(m._dumps({'a': [1, 2.5, (None, True)], 'b': {3}, b'c': 'x' * 300, 'd': 1 << 80}))
        [m._loads(m._dumps([m.PickleError('x'), len, 'é', frozenset([1])], protocol=p)) for p in range(5)]
        m._dumps(lambda: 0)
        m._loads(b'\\x80\\x04]')
    """,
    "posixpath": "m.join('/a', 'b', '/c', 'd'), m.normpath('/a/./b//../c'), m.splitext('x/.y.tar.gz'), m.relpath('/a/b', '/a/c/d'), m.commonpath(['/usr/lib', '/usr/bin']), m.commonprefix(['ab', 'ac']), m.expanduser('~nobody_x')",
    "pprint": """
        m.pformat({'key%d' % i: list(range(i * 3)) for i in range(9)}, width=40), m.pformat([[['deep'] * 9] * 3], depth=2), m.pformat('word ' * 40), m.pformat({1, 'a'}), m.isreadable([1])
    """,
    "quopri": "m.encodestring(b'a=b\\xff\\n' * 20), m.decodestring(b'=41=\\nb')",
    "random": """
        [(r.random(), r.randrange(5, 50, 3), r.choice('abc'), r.sample(range(99), 4), r.gauss(0, 1), r.betavariate(1, 2), r.expovariate(3), r.triangular(), r.choices('xy', [1, 9], k=5), r.shuffle(l), l) for r in (m.Random(7),) for l in ([1, 2, 3],)]
        [(r.vonmisesvariate(1, 2), r.gammavariate(.5, 2), r.gammavariate(2, 2), r.normalvariate(), r.lognormvariate(0, 1), r.weibullvariate(1, 2), r.paretovariate(3), r.randbytes(3)) for r in (m.Random(3),)]
        m.Random(1).sample([1], 2)
        m.Random(1).choices([1, 2], [0, 0])
        m.Random(1).randrange(3, 3)
    """,
    "reprlib": "m.repr(list(range(99))), m.repr('x' * 99), m.repr({1: {2: {3: {}}}}), m.recursive_repr()(lambda s: 'r')(3)",
    "sched": "[(s.enter(0, 1, out.append, (3,)), s.enter(0, 0, out.append, (4,)), s.run(), out, s.empty()) for out in ([],) for s in (m.scheduler(lambda: 0, print),)]",
    "shlex": """
        m.split("a 'b c' d\\\\ e \\"f\\\\\\"g\\" # no"), m.split('a # b', comments=True), m.quote("it's"), m.join(['a b', 'c'])
        m.split("'open")
        list(m.shlex('a && b; c', punctuation_chars=True))
    """,
    "statistics": """
        m.mean([1, 2, 4]), m.median([3, 1, 2, 9]), m.mode('aab'), m.stdev([1, 2.5, 3]), m.quantiles(range(10), n=4), m.fmean([1, 2]), m.harmonic_mean([2, 6]), m.geometric_mean([1, 3])
        m.NormalDist(1, 2).cdf(1.5), m.NormalDist(0, 1).inv_cdf(.9), m.NormalDist.from_samples([1, 2, 3]), m.NormalDist() + m.NormalDist(2, 3), m.correlation([1, 2, 3], [2, 4, 7]), m.linear_regression([1, 2], [2, 5]), m.multimode([1, 1, 2, 2])
        m.mean([])
        m.variance([1]), m.median_grouped([1, 2, 2, 3])
    """,
    "string": "m.Template('$a ${b} $$').substitute(a=1, b=2), m.Template('$x').safe_substitute(), m.Template('$').substitute(), m.Formatter().format('{0!r:>5} {k[0]} {0.real}', 1, k=[2]), m.capwords('a bc')",
    "_strptime": "m._strptime_time('2021-03-04 05:06', '%Y-%m-%d %H:%M'), m._strptime_time('x', '%Y'), m._strptime_datetime(__import__('datetime').datetime, '3 Mar 21 PM 03', '%d %b %y %p %I')",
    "tabnanny": "m.Whitespace('\\t  x').not_less_witness(m.Whitespace('  \\tx')), m.Whitespace('\\t x').indent_level(4), m.Whitespace('  ').equal(m.Whitespace('\\t')), m.format_witnesses([(1, 2, 3)])",
    "textwrap": """
        m.wrap('The quick brown fox-like thing jumped over ' * 3, 20), m.fill('a b c ' * 9, 10, initial_indent='* '), m.shorten('hello big world', 10), m.dedent('  a\\n   b\\n'), m.indent('a\\n\\nb', '> ')
        m.wrap('x' * 50, 20, break_long_words=False, max_lines=2), m.wrap('a', 0)
    """,
    "tokenize": """
        [(t.type, t.string) for t in m.generate_tokens(iter(['def f(x):\\n', '  return x + "s" # c\\n']).__next__)]
        m.untokenize([(1, 'a'), (54, '+'), (1, 'b')]), m.detect_encoding(iter([b'# -*- coding: latin-1 -*-\\n']).__next__)
    """,
    "traceback": """
        m.format_exception_only(ValueError, ValueError('x')), m.format_exception(KeyError, KeyError(1), None), [str(m.TracebackException(SyntaxError, SyntaxError('m', ('f', 1, 2, 'text')), None))]
        m.format_list([('file', 3, 'fn', 'code')])
    """,
    "types": "m.new_class('N', (int,), {}, lambda ns: ns.update(a=3)).a, m.resolve_bases([int]), m.prepare_class('X'), m.DynamicClassAttribute(lambda s: 4).fget(1), m.SimpleNamespace(a=1)",
    "typing": """
        m.Optional[int], m.Union[int, str, int], m.List[m.Dict[str, int]], m.Callable[[int], str], m.get_type_hints(lambda: 0), m.get_args(m.Tuple[int, ...]), m.get_origin(m.List[int])
        m.Union[()]
        m.NamedTuple('P', [('x', int)])(3), m.TypedDict('T', {'a': int})(a=1), m.Literal[1, '2'], m.TypeVar('T', bound=int), m.Annotated[int, 3], m.NewType('U', int)(5), m.cast(int, 'a'), m.ForwardRef('int')._evaluate
    """,
    "unittest.mock": """
        [(k.a.b(1, x=2), k.a.b.assert_called_once_with(1, x=2), k.mock_calls, k.a.b.call_args.kwargs) for k in (m.MagicMock(),)]
        [(setattr(k, 'side_effect', [1, ValueError]), k(), k()) for k in (m.Mock(),)]
        m.Mock(spec=['a']).b
        m.Mock().assert_called()
        len(m.MagicMock()), m.create_autospec(lambda a, b=1: 0)(3) is None, m.patch.dict({}, {'a': 1}).__enter__(), m.call(1) == m.call(1), m.mock_open(read_data='x')().read()
    """,
    "urllib.parse": """
        m.urlparse('http://u:p@h.com:80/p;q?r=1#f').port, m.urlsplit('//[::1]/x'), m.urljoin('http://a/b/c/d', '../e?f'), m.parse_qs('a=1&a=2&b=%20'), m.urlencode({'x': [1, 2], 'y': 'a b'}, doseq=True), m.quote('é/ ~', safe=''), m.unquote('%C3%A9%zz'), m.urlunsplit(('s', 'n', 'p', 'q', 'f')), m.urldefrag('a#b')
        m.urlsplit('http://[x')
        m.urlparse('http://h:99999').port
    """,
    "uuid": "m.UUID(int=5).hex, m.uuid5(m.NAMESPACE_DNS, 'x'), m.uuid3(m.NAMESPACE_URL, 'y').version, m.UUID('bad'), m.UUID(bytes=b'a' * 16).fields",
    "weakref": "[(d.__setitem__(1, s), len(d), dict(d), m.finalize(s, print).alive, m.WeakSet([s]) == {s}) for d in (m.WeakValueDictionary(),) for s in (type('S', (), {})(),)][0][1:2]",
    "xml.etree.ElementTree": """
        m.tostring(m.fromstring('<a x=\"1\"><b>t&amp;</b>tail<c/></a>')), [e.tag for e in m.fromstring('<a><b><c/></b><b/></a>').iter('b')], m.fromstring('<a><b k=\"v\"/></a>').find('b[@k]').get('k')
        m.fromstring('<a>')
        (lambda e: (m.SubElement(e, 'y', {'p': 'q'}), m.indent(e), m.tostring(e, encoding='unicode')))(m.Element('x')), m.canonicalize('<a  z=\"1\" b=\"2\"/>')
    """,
}


def load(name: str, change: Callable[[CodeType], CodeType]) -> ModuleType:
    before = importlib.import_module(name)
    module = ModuleType(name)
    for attribute in ("__file__", "__package__", "__spec__", "__path__"):
        if hasattr(before, attribute):
            setattr(module, attribute, getattr(before, attribute))
    path = str(before.__file__)
    sys.modules[name] = module  # dataclasses and enums look their module up
    try:
        exec(change(compile(Path(path).read_bytes(), path, "exec")), vars(module))
    finally:
        sys.modules[name] = before
    return module


def expressions(name: str) -> Iterator[CodeType]:
    """The elements of a line that is a tuple are tried one by one."""
    for line in filter(None, map(str.strip, TRIALS[name].splitlines())):
        body = ast.parse(line, mode="eval").body
        for part in body.elts if isinstance(body, ast.Tuple) else [body]:
            yield compile(ast.Expression(part), name, "eval")


def outcomes(module: ModuleType, name: str) -> list[str]:
    found = []
    for trial in expressions(name):
        try:
            result = repr(eval(trial, {"m": module, "sys": sys}))
        except (Exception, SystemExit) as error:
            result = f"{type(error).__name__}: {error}"
        found.append(re.sub(r"0x[0-9a-f]+|id='\d+'|File \".*\"", "", result))
    return found


RAN: set[tuple[str, str, int]] = set()


@pytest.mark.parametrize("name", TRIALS)
def test_module(name: str, converted: Callable[[CodeType], CodeType]) -> None:
    expected = outcomes(load(name, lambda code: code), name)
    module = load(name, converted)

    def profile(frame: Any, event: str, arg: Any) -> None:
        if event == "call" and frame.f_globals is vars(module):
            RAN.add((name, frame.f_code.co_name, frame.f_code.co_firstlineno))

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        got = outcomes(module, name)
    finally:
        sys.setprofile(before)
    assert got == expected


def test_that_was_a_good_many() -> None:
    if len({module for module, _, _ in RAN}) > 40:  # else only some of the modules above were asked for
        assert len(RAN) > 900, len(RAN)
