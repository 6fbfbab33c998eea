"""Every method of Python's own types, as rows: what is made, and what it is asked (between ¦)."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import types

import pytest
import torch
from following import check

X = torch.arange(3.0)
NT = collections.namedtuple("NT", "a b")
NAMES = {"collections": collections, "copy": copy, "dataclasses": dataclasses, "types": types, "NT": NT}

ROWS: dict[str, str] = {
    "l=[3,1,2]": r"""
        l.append(1)  ¦  l.clear()  ¦  l.copy()  ¦  l.count(1)  ¦  l.extend([1])  ¦  l.index(2)  ¦  l.index(2,1,3)
        l.insert(-1,5)  ¦  l.pop()  ¦  l.pop(-2)  ¦  l.remove(2)  ¦  l.reverse()  ¦  l.sort()
        l.sort(key=lambda v:-v,reverse=True)  ¦  l.__imul__(2)  ¦  l*2  ¦  2*l  ¦  l+[1]  ¦  l==[1]  ¦  l<[2]
        l!=[3,1,2]  ¦  l[1:]  ¦  l[::-1]  ¦  l.__contains__(1)  ¦  l.__len__()  ¦  l.__getitem__(0)
        l.__setitem__(0,9)  ¦  l.__delitem__(0)  ¦  l.__iter__().__next__()  ¦  list(l.__reversed__())
        l.__iadd__([1])  ¦  l.__add__([1])  ¦  l.__eq__([1])  ¦  repr(l)  ¦  str(l)  ¦  list(reversed(l))  ¦  sorted(l)
        l.__class__  ¦  min(l),max(l),sum(l)  ¦  [*l,*l]  ¦  l.__ne__([1])  ¦  l.__rmul__(2)  ¦  l.index(99)
        l.remove(99)  ¦  bool(l)  ¦  list.append(l,4)  ¦  list.__len__(l)
    """,
    "l=(3,1,2)": r"""
        l.count(1)  ¦  l.index(2)  ¦  l+(1,)  ¦  l*2  ¦  l<(4,)  ¦  l[1:]  ¦  hash(l)  ¦  l.__getitem__(1)  ¦  repr(l)
        l.__len__()  ¦  l.__contains__(1)  ¦  l.__iter__().__next__()  ¦  l.__add__((1,))  ¦  l.__eq__((1,))
        l.__hash__()  ¦  l.__mul__(2)  ¦  l.index(99)  ¦  tuple(reversed(l))
    """,
    "d={'a':1,'b':2}": r"""
        d.clear()  ¦  d.copy()  ¦  d.get('a')  ¦  d.get('z',1)  ¦  list(d.items())  ¦  list(d.keys())
        list(d.values())  ¦  d.pop('a')  ¦  d.pop('z',0)  ¦  d.pop('z')  ¦  d.popitem()  ¦  d.setdefault('a',4)
        d.setdefault('q')  ¦  d.update(b=4)  ¦  d.update({'r':1})  ¦  d.update([('k',1)])  ¦  dict.fromkeys('ab',1)
        d|{'z':1}  ¦  d.__ior__({'z':1})  ¦  d.__or__({'z':1})  ¦  {'z':1}|d  ¦  d=={'a':1}  ¦  d!={'a':1}  ¦  'a' in d
        d.__contains__('a')  ¦  d.__getitem__('a')  ¦  d.__setitem__('a',4)  ¦  d.__delitem__('a')  ¦  len(d)
        d.__len__()  ¦  list(d)  ¦  list(reversed(d))  ¦  list(d.__reversed__())  ¦  list(d.__iter__())  ¦  repr(d)
        d.keys()&{'a'}  ¦  d.keys()|{'z'}  ¦  d.keys()-{'a'}  ¦  d.keys()=={'a','b'}  ¦  d.items()&{('a',1)}
        ('a',1) in d.items()  ¦  'a' in d.keys()  ¦  1 in d.values()  ¦  d.keys().isdisjoint({'z'})  ¦  len(d.items())
        list(reversed(d.items()))  ¦  list(reversed(d.values()))  ¦  d.keys()<={'a','b','c'}  ¦  {**d}  ¦  dict(d,z=1)
        dict(**d)  ¦  dict(zip('ab',[1,2]))  ¦  d.__eq__({})  ¦  d['zz']  ¦  d.keys()  ¦  d.values()  ¦  d.items()
        iter(d)  ¦  bool(d)  ¦  d.items()==d.items()  ¦  d.values()==d.values()  ¦  set(d.items())  ¦  sorted(d.items())
        max(d,key=d.get)  ¦  dict.get(d,'a')  ¦  d.items()-{('a',1)}  ¦  d.items()|set()
    """,
    "s={1,2,3}": r"""
        s.add(9)  ¦  s.clear()  ¦  s.copy()  ¦  s.difference([1])  ¦  s.difference_update([1])  ¦  s.discard(1)
        s.intersection([1])  ¦  s.intersection_update([1,2])  ¦  s.isdisjoint([7])  ¦  s.issubset([1,2,3,4])
        s.issuperset([1])  ¦  s.pop()  ¦  s.remove(1)  ¦  s.remove(99)  ¦  s.symmetric_difference_update([1,9])
        s.union([7])  ¦  s.update([7])  ¦  s|{9}  ¦  s&{1}  ¦  s-{1}  ¦  s<{1,2,3,4}  ¦  s<={1,2,3}  ¦  s>{1}  ¦  s>=s
        s=={1,2,3}  ¦  s!={1}  ¦  len(s)  ¦  1 in s  ¦  s.__contains__(1)  ¦  repr(s)  ¦  sorted(s)  ¦  s.__or__({8})
        s.__len__()  ¦  s.__iter__().__next__()  ¦  bool(s)  ¦  s.__eq__({1})  ¦  list(s)  ¦  min(s)  ¦  {x.shape[0],*s}
        set(s)  ¦  frozenset(s)  ¦  s.__ior__({1})  ¦  s.__isub__({1})  ¦  s.__iand__({1})  ¦  s.__ixor__({1})
        set().pop()
    """,
    "f=frozenset([1,2,3])": r"""
        f.copy()  ¦  f.difference([1])  ¦  f.intersection([1])  ¦  f.isdisjoint([7])  ¦  f.issubset([1,2,3])
        f.issuperset([1])  ¦  f.symmetric_difference([9])  ¦  f.union([7])  ¦  f|{9}  ¦  f&{1}  ¦  f-{1}  ¦  f^{1}
        f<{1,2,3,4}  ¦  f=={1,2,3}  ¦  hash(f)  ¦  repr(f)  ¦  list(f)  ¦  1 in f  ¦  len(f)  ¦  {1,2}|f  ¦  type(f|{1})
        type({1}|f)  ¦  f.__contains__(1)  ¦  f.__iter__().__next__()
    """,
    "s='hello'": r"""
        s.capitalize()  ¦  s.casefold()  ¦  s.center(9,'*')  ¦  s.count('l')  ¦  s.encode()  ¦  s.endswith('o')
        s.expandtabs(3)  ¦  s.find('l')  ¦  s.format(1)  ¦  '{} {a}'.format(1,a=2)  ¦  '{a}'.format_map({'a':1})
        s.index('l')  ¦  s.index('z')  ¦  s.isalnum()  ¦  s.isalpha()  ¦  s.isascii()  ¦  s.isdecimal()  ¦  s.isdigit()
        s.isidentifier()  ¦  s.islower()  ¦  s.isnumeric()  ¦  s.isprintable()  ¦  s.isspace()  ¦  s.istitle()
        s.isupper()  ¦  s.join('ab')  ¦  s.ljust(9)  ¦  s.lower()  ¦  s.lstrip('h')  ¦  str.maketrans('l','1')
        str.maketrans({'l':'1'})  ¦  s.translate({108:'1'})  ¦  s.translate(str.maketrans('l','1'))  ¦  s.partition('l')
        s.removeprefix('he')  ¦  s.removesuffix('lo')  ¦  s.replace('l','L')  ¦  s.rfind('l')  ¦  s.rindex('l')
        s.rjust(9)  ¦  s.rpartition('l')  ¦  s.rsplit('l')  ¦  s.rstrip()  ¦  s.split('l')  ¦  s.splitlines()
        s.startswith('h')  ¦  s.strip()  ¦  s.swapcase()  ¦  s.title()  ¦  s.upper()  ¦  s.zfill(9)  ¦  s*2  ¦  s+'a'
        s[1]  ¦  s[::-1]  ¦  s%()  ¦  '%d %s'%(1,'a')  ¦  '%(a)s'%{'a':1}  ¦  s<'z'  ¦  'l' in s  ¦  len(s)
        hash(s)==hash('hello')  ¦  list(s)  ¦  list(reversed(s))  ¦  sorted(s)  ¦  s.__len__()  ¦  s.__contains__('l')
        s.__iter__().__next__()  ¦  iter(s)  ¦  s.__add__('a')  ¦  str(b'a','utf8')  ¦  str.upper(s)
        list(map(str.upper,s))  ¦  ' '.join(str(i) for i in range(3))  ¦  s.__mod__(())  ¦  s.__format__('>9')
        s.__getitem__(0)
    """,
    "b=b'abc'": r"""
        b.hex()  ¦  b.decode()  ¦  b.capitalize()  ¦  b.count(b'a')  ¦  b.find(b'b')  ¦  b.join([b'x',b'y'])
        b.split(b'b')  ¦  b.replace(b'a',b'z')  ¦  b.upper()  ¦  b[0]  ¦  b[1:]  ¦  list(b)  ¦  b+b'x'  ¦  b*2
        bytes.fromhex('ff')  ¦  bytes(3)  ¦  bytes([1,2])  ¦  bytes.maketrans(b'a',b'b')
        b.translate(bytes.maketrans(b'a',b'b'))  ¦  b.startswith(b'a')  ¦  b.strip()  ¦  97 in b  ¦  b'%d'%3
        hash(b)==hash(b'abc')  ¦  len(b)  ¦  b<b'z'  ¦  b.isalpha()  ¦  b.zfill(9)  ¦  b.partition(b'b')  ¦  repr(b)
        b.__iter__().__next__()
    """,
    "i=5": r"""
        i.bit_length()  ¦  i.bit_count()  ¦  i.conjugate()  ¦  i.to_bytes(2,'big')  ¦  int.from_bytes(b'ab','big')
        i.as_integer_ratio()  ¦  i.real  ¦  i.imag  ¦  i.numerator  ¦  i.denominator  ¦  int('12')  ¦  int('ff',16)
        int(2.5)  ¦  i.__index__()  ¦  i.__add__(1)  ¦  i.__floor__()  ¦  i.__ceil__()  ¦  round(i)  ¦  i**-1  ¦  -i
        ~i  ¦  i<<2  ¦  i>>1  ¦  i&3  ¦  i|8  ¦  i^1  ¦  divmod(i,2)  ¦  pow(i,2,5)  ¦  abs(i)  ¦  hash(i)  ¦  i/0
        int('z')  ¦  i.__bool__()  ¦  i.__pow__(2)  ¦  i.__rsub__(9)  ¦  format(i,'x')  ¦  bool(i)  ¦  float(i)
        complex(i)  ¦  i==5.0  ¦  i.__divmod__(2)  ¦  (i).__class__  ¦  i.__repr__()  ¦  i.__neg__()
    """,
    "v=2.75": r"""
        v.as_integer_ratio()  ¦  v.conjugate()  ¦  v.hex()  ¦  float.fromhex('0x1p-1')  ¦  v.imag  ¦  v.is_integer()
        v.real  ¦  float('nan')  ¦  float('inf')  ¦  round(v,1)  ¦  int(v)  ¦  v//1  ¦  v%1  ¦  divmod(v,1)  ¦  v**2
        abs(v)  ¦  hash(v)  ¦  repr(v)  ¦  format(v,'.2f')  ¦  v.__trunc__()  ¦  v.__round__()  ¦  v.__add__(1)
        v.__floor__()  ¦  float()  ¦  -v  ¦  bool(v)  ¦  v<1  ¦  float.__getformat__('double')
    """,
    "c=1+2j": r"""
        c.conjugate()  ¦  c.real  ¦  c.imag  ¦  abs(c)  ¦  c*2  ¦  c==1  ¦  c.__add__(1)  ¦  complex('1+2j')
        complex(1,2)  ¦  hash(c)  ¦  repr(c)  ¦  c**2  ¦  -c  ¦  bool(c)  ¦  format(c,'.1f')
    """,
    "r=range(0,6,2)": r"""
        r.count(2)  ¦  r.index(2)  ¦  r.start  ¦  r.stop  ¦  r.step  ¦  r[1]  ¦  r[1:]  ¦  len(r)  ¦  2 in r  ¦  list(r)
        list(reversed(r))  ¦  r==range(0,6,2)  ¦  hash(r)  ¦  repr(r)  ¦  r.__iter__().__next__()  ¦  iter(r)  ¦  sum(r)
        r.__len__()  ¦  r.__contains__(2)  ¦  r.index(99)  ¦  sorted(r)  ¦  r.__reversed__()
    """,
    "sl=slice(1,2)": r"""
        sl.indices(5)  ¦  sl.start  ¦  sl.stop  ¦  sl.step  ¦  sl==slice(1,2)  ¦  repr(sl)  ¦  [1,2,3][sl]  ¦  (1,2)[sl]
        'abc'[sl]  ¦  sl  ¦  slice(None)
    """,
    "q=collections.deque([1,2,3])": r"""
        q.append(1)  ¦  q.appendleft(1)  ¦  q.clear()  ¦  q.copy()  ¦  q.count(1)  ¦  q.extend([1])
        q.extendleft([1,2])  ¦  q.index(2)  ¦  q.index(2,0,3)  ¦  q.index(99)  ¦  q.insert(1,9)  ¦  q.pop()
        q.popleft()  ¦  q.remove(2)  ¦  q.remove(99)  ¦  q.reverse()  ¦  q.rotate(1)  ¦  q.maxlen
        q+collections.deque([1])  ¦  q*2  ¦  2*q  ¦  q.__imul__(2)  ¦  q.__iadd__([1])  ¦  q==collections.deque([1,2,3])
        q!=q  ¦  q[0]  ¦  q[-1]  ¦  q.__setitem__(0,5)  ¦  q.__delitem__(0)  ¦  len(q)  ¦  2 in q  ¦  list(q)
        list(reversed(q))  ¦  bool(q)  ¦  copy.copy(q)  ¦  q.__iter__().__next__()  ¦  iter(q)  ¦  sorted(q)
        q.insert(0,1),q  ¦  collections.deque([1,2],2).insert(0,1)  ¦  collections.deque([1,2,3],2)*2
    """,
    "dd=collections.defaultdict(list,a=[1])": r"""
        dd['a']  ¦  dd['z'].append(1)  ¦  dd.default_factory  ¦  dd.copy()  ¦  dd|{'q':1}  ¦  dd.get('z')
        dd.__missing__('k')  ¦  dd.setdefault('m',1)  ¦  'z' in dd  ¦  dd.pop('a')  ¦  collections.defaultdict(None,a=1)
        collections.defaultdict(int)['q']  ¦  dict(dd)  ¦  dd=={'a':[1]}  ¦  collections.defaultdict(lambda:3,{'a':1})
        dd.__ior__({'w':1})
    """,
    "od=collections.OrderedDict(a=1,b=2)": r"""
        od.move_to_end('a')  ¦  od.move_to_end('b',last=False)  ¦  od.popitem()  ¦  od.popitem(last=False)
        od.pop('a')  ¦  list(reversed(od))  ¦  od==collections.OrderedDict(a=1,b=2)  ¦  od|{'q':1}  ¦  od.copy()
        od.update(c=1)  ¦  list(od.items())  ¦  od.setdefault('x',1)  ¦  od.clear()  ¦  od.keys()&{'a'}
        list(reversed(od.items()))  ¦  collections.OrderedDict.fromkeys('ab')  ¦  od.__ior__({'w':1})  ¦  od.values()
    """,
    "c=collections.Counter('aab')": r"""
        c['a']  ¦  c['zz']  ¦  list(c.elements())  ¦  c.most_common()  ¦  c.most_common(1)  ¦  c.subtract('a')
        c.total()  ¦  c.update('ab')  ¦  c+c  ¦  c-collections.Counter('a')  ¦  c&collections.Counter('a')
        c|collections.Counter('zz')  ¦  +c  ¦  -c  ¦  c==collections.Counter('aab')  ¦  c<=c  ¦  c<c  ¦  repr(c)
        c.copy()  ¦  dict(c)  ¦  c.__iadd__(c)  ¦  c.__isub__(collections.Counter('a'))  ¦  c.__delitem__('a')
        c.pop('a')  ¦  c.items()  ¦  sorted(c)  ¦  c.keys()
    """,
    "n=NT(1,2)": r"""
        n.a  ¦  n._asdict()  ¦  n._replace(a=5)  ¦  n._fields  ¦  NT._make([1,2])  ¦  n.count(1)  ¦  n.index(2)
        n+(1,)  ¦  n==(1,2)  ¦  n<(2,)  ¦  repr(n)  ¦  n[0]  ¦  n[1:]  ¦  NT(1,2)  ¦  NT(a=1,b=2)  ¦  NT._field_defaults
        list(n)  ¦  n._replace(z=1)  ¦  str(n)  ¦  n.__class__.__name__
    """,
    "m=types.MappingProxyType({'a':1})": r"""
        m['a']  ¦  m.get('z')  ¦  list(m)  ¦  list(m.items())  ¦  list(m.keys())  ¦  list(m.values())  ¦  len(m)
        'a' in m  ¦  m.copy()  ¦  m|{'z':1}  ¦  m=={'a':1}  ¦  m['z']  ¦  list(reversed(m))  ¦  dict(m)  ¦  {**m}  ¦  m
        m.__contains__('a')  ¦  bool(m)  ¦  m.__setitem__
    """,
    "l = [3, 1, 2]": r"""
        iter(l).__next__()  ¦  next(iter(l))  ¦  list(iter(iter(l).__next__,2))  ¦  iter(l).__iter__().__next__()
        enumerate(l).__next__()  ¦  zip(l,l).__next__()  ¦  map(str,l).__next__()  ¦  reversed(l).__next__()
        (v for v in l).__next__()  ¦  iter({'a':1}).__next__()  ¦  iter('ab').__next__()  ¦  iter(range(3)).__next__()
        type(iter(l)).__name__  ¦  type(reversed(l)).__name__  ¦  type(enumerate(l)).__name__
        list(zip(*[iter([1,2,3,4])]*2))  ¦  list(zip(l,l,strict=True))  ¦  iter([]).__next__()
        type(iter({1:2}.items())).__name__  ¦  [n() for n in [iter(l).__next__]]
    """,
    "i=1": r"""
        str(AttributeError('a'))  ¦  str(KeyError('k'))  ¦  str(OSError(2,'m'))  ¦  repr(ValueError('a'))
        str(ValueError(1,2))  ¦  OSError(2,'m').errno  ¦  type(OSError(2,'m')).__name__
        str(FileNotFoundError(2,'m','f'))  ¦  str(dataclasses.FrozenInstanceError('a'))  ¦  str(StopIteration(3))
        str(AttributeError('n',name='q'))  ¦  str(UnicodeDecodeError('u',b'a',0,1,'r'))  ¦  str(SystemExit(3))
        str(NameError('x'))  ¦  str(IndexError('i'))  ¦  str(ImportError('m'))  ¦  str(SyntaxError('s'))
        KeyError('a').args  ¦  str(NotImplementedError())  ¦  TypeError.__name__  ¦  f'{ValueError(3)}'
        str(TimeoutError('x'))  ¦  str(UnboundLocalError('u'))
    """,
}


def program(setup: str, questions: list[str]) -> types.FunctionType:
    """One function that asks everything of a fresh object, and keeps the answers, the errors and the objects."""
    name = setup.partition("=")[0].strip()
    lines = ["def ask(x):", "    found = []"]
    for question in questions:
        lines += [f"    {setup}", "    try:", f"        found.append(({question}, {name}))"]
        lines += ["    except Exception as error:", f"        found.append((type(error), str(error), {name}))"]
    space = dict(NAMES)
    exec(compile("\n".join([*lines, "    return x + 1, found"]), "<rows>", "exec"), space)
    return space["ask"]


@pytest.mark.parametrize("setup", ROWS)
def test_methods(setup):
    rows = [each.strip() for line in ROWS[setup].strip().splitlines() for each in line.split("¦")]
    for first in range(0, len(rows), 20):
        check(program(setup, rows[first : first + 20]), (X,))


class Documented:
    def method(self, x: torch.Tensor) -> torch.Tensor:
        """Add one."""
        return x + 1


def wraps_a_method(x: torch.Tensor) -> object:
    method = Documented().method

    @functools.wraps(method)
    def wrapper(x: torch.Tensor) -> torch.Tensor:
        return method(x) * 2

    return wrapper(x), wrapper.__doc__, wrapper.__name__, wrapper.__qualname__


def test_what_a_bound_method_shows_of_its_function() -> None:
    check(wraps_a_method, (X,))
