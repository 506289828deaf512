"""Mutators: a valid file, changed at random. Its bytes; or its structure, so that sizes and checksums around it fit.

All take the content of a file and a generator of random numbers, and give back another content.
"""

import ast
import contextlib
import gzip
import io
import json
import zipfile
import zlib

import numpy as np

SIZES = [0, 1, -1, 2, 7, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 2, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62]
SIZES += [2**63 - 1, -(2**31), -(2**63)]
CELLS = [
    "",
    " ",
    "nan",
    "NaN",
    "inf",
    "-inf",
    "1e999",
    "-1e-320",
    "0x10",
    "1,5",
    "1.2.3",
    "--1",
    "9" * 400,
    '"',
    '"a"b',
]
CELLS += ["ä€😀", "\ufeff", "\x00", "\r", "\\N", "=1+1", "%", "#", "true", "1_000", "١٢", "z" * 70_000]
TYPES = ["<f8", ">f4", "<f2", "|b1", "<i8", "|u1", "<u8", "<c16", "|O", "<U5", "<U2147483647", "|V0", "<M8[ns]", "|S0"]
TYPES += ["<g16", "x", "", "<f8,<i4", "i4294967296"]


def one_of(rng, options):
    return options[rng.integers(len(options))]


def change_bytes(data, rng):
    """Bits flipped, bytes overwritten, parts cut out, repeated, moved, filled; the end cut off or grown."""
    out = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        size = max(len(out), 1)
        a = int(rng.integers(size))
        b = min(len(out), a + int(rng.integers(1, 1 + min(size, one_of(rng, [4, 64, size])))))
        match rng.integers(9):
            case 0:
                out[a : a + 1] = bytes(x ^ (1 << int(rng.integers(8))) for x in out[a : a + 1])
            case 1:
                out[a:b] = rng.bytes(b - a)
            case 2:
                del out[a:b]
            case 3:
                out[a:a] = out[a:b]
            case 4:
                out[a:b] = one_of(rng, [b"\x00", b"\xff", b"\x80", b"9"]) * (b - a)
            case 5:
                del out[a:]
            case 6:
                out += rng.bytes(b - a)
            case _:  # a size, or a type, as binary formats hold them
                width = one_of(rng, [1, 2, 4, 8])
                number = one_of(rng, SIZES) % (1 << (8 * width))
                out[a : a + width] = number.to_bytes(width, one_of(rng, ["little", "big"]))
    return bytes(out)


def change_text(data, rng):
    """Cells replaced, added or left out; lines left out, repeated, or swapped; another encoding."""
    lines = data.decode("latin-1").splitlines(keepends=True) or [""]
    for _ in range(rng.integers(1, 4)):
        k = min(int(rng.integers(len(lines) + 1)), len(lines) - 1) if rng.random() < 0.7 else 0
        mark = max(",\t; ", key=lines[k].count)
        cells = lines[k].rstrip("\n").split(mark)
        at = int(rng.integers(len(cells)))
        match rng.integers(8):
            case 0 | 1 | 2:
                cells[at] = one_of(rng, CELLS)
            case 3:
                cells[at] = str(one_of(rng, SIZES))
            case 4:
                del cells[at]
            case 5:
                cells.insert(at, one_of(rng, cells))
            case 6:
                mark = one_of(rng, [";", "\t", "|", ",", " "])
            case _:
                lines.insert(k, one_of(rng, lines))
        lines[k] = mark.join(cells) + one_of(rng, ["\n", "\n", "\n", "\r\n", ""])
    codec = one_of(rng, ["utf-8"] * 6 + ["utf-16", "latin-1", "utf-32"])
    return "".join(lines).encode(codec, errors="replace")


def change_npy(data, rng):
    """Another shape, type or order in the header."""
    end = data.index(b"\n") + 1
    header = ast.literal_eval(data[10:end].decode("latin-1"))
    match rng.integers(5):
        case 0:
            header["shape"] = tuple(one_of(rng, SIZES) for _ in range(rng.integers(5)))
        case 1:
            header["descr"] = one_of(rng, TYPES)
        case 2:
            header["fortran_order"] = one_of(rng, [True, 1, "yes", None])
        case 3:
            shape = [*header["shape"], 1]
            shape[int(rng.integers(len(shape)))] = one_of(rng, [*SIZES, 1.5, "3", None])
            header["shape"] = tuple(shape)
        case _:
            header[one_of(rng, ["shape", "descr", "more"])] = one_of(rng, [(), [], None, "x", (3,), 7])
    text = repr(header).encode("latin-1").ljust(117) + b"\n"
    return data[:6] + bytes([one_of(rng, [1, 1, 1, 2, 3, 9]), 0]) + len(text).to_bytes(2, "little") + text + data[end:]


def change_archive(data, rng):
    """A file in a zip archive changed, left out, packed or named twice."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = [(name, archive.read(name)) for name in archive.namelist()]
    k = int(rng.integers(len(files)))
    name, content = files[k]
    match rng.integers(6):
        case 0:
            del files[k]
        case 1:
            files[k] = (one_of(rng, ["x", "../x.npy", "frames.npy", "header.npy", *dict(files)]), content)
        case 2:
            files[k] = (name, files[int(rng.integers(len(files)))][1])
        case _:
            files[k] = (name, change_file(name, content, rng))
    out, packing = io.BytesIO(), one_of(rng, [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    with zipfile.ZipFile(out, "w", packing) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return out.getvalue()


def change_gzip(data, rng):
    """The content changed, and packed again."""
    return gzip.compress(change_text(gzip.decompress(data), rng), 1)


def change_json(data, rng):
    """A value, anywhere, replaced, or left out."""
    whole = json.loads(data)
    places = [(whole, key) for key in (whole if isinstance(whole, dict) else range(len(whole)))]
    for holder, key in places:  # which grows
        inside = holder[key]
        if isinstance(inside, dict | list) and len(places) < 200:
            places += [(inside, one) for one in (inside if isinstance(inside, dict) else range(len(inside)))]
    holder, key = one_of(rng, places)
    if rng.random() < 0.2 and isinstance(holder, dict):
        del holder[key]
    else:
        holder[key] = one_of(rng, [*SIZES, None, "", "x", [], {}, [1, 2], True, 1.5, "<f4", "<i8", float("nan")])
    return json.dumps(whole).encode()


def change_matlab(data, rng):
    """A matrix changed, and packed again if it was."""
    elements, position = [], 128
    while position + 8 <= len(data):
        kind, size = (int(x) for x in np.frombuffer(data[position : position + 8], "<u4"))
        elements.append((kind, data[position + 8 : position + 8 + size]))
        position += 8 + size
    k = int(rng.integers(len(elements)))
    kind, content = elements[k]
    packed = kind == 15
    content = bytearray(zlib.decompress(content) if packed else content)
    for _ in range(rng.integers(1, 3)):
        at = int(rng.integers(0, max(1, min(len(content), one_of(rng, [64, 200, len(content)]))))) // 4 * 4
        content[at : at + 4] = (one_of(rng, [*SIZES, 3, 4, 5, 9, 14, 15, 16, 17]) % 2**32).to_bytes(4, "little")
    elements[k] = (kind, zlib.compress(bytes(content)) if packed else bytes(content))
    return data[:128] + b"".join(np.array([kind, len(c)], "<u4").tobytes() + c for kind, c in elements)


def change_table(data, rng, ending):
    """A column of an Arrow or Parquet table replaced by another type, or named twice; other packing."""
    import pyarrow
    from pyarrow import feather, parquet

    table = parquet.read_table(io.BytesIO(data)) if ending == ".parquet" else feather.read_table(io.BytesIO(data))
    n, k = table.num_rows, int(rng.integers(table.num_columns))
    numbers = rng.standard_normal(n)
    columns = [
        lambda: pyarrow.array([None] * n),
        lambda: pyarrow.array([[1.0]] * n),
        lambda: pyarrow.array([{"a": 1}] * n),
        lambda: pyarrow.array([one_of(rng, CELLS) for _ in range(n)]).dictionary_encode(),
        lambda: pyarrow.array([one_of(rng, CELLS) for _ in range(n)]),
        lambda: pyarrow.array([rng.bytes(3) for _ in range(n)]),
        lambda: pyarrow.array(numbers.astype(np.float16)),
        lambda: pyarrow.array(np.where(numbers > 0, np.inf, np.nan)),
        lambda: pyarrow.array(numbers > 0),
        lambda: pyarrow.array((numbers * 1e18).astype(np.int64)).cast(pyarrow.decimal128(30, 5)),
        lambda: pyarrow.array((numbers * 1e9).astype("M8[ns]")),
        lambda: pyarrow.array(rng.integers(0, 2**63, n).astype(np.uint64)),
    ]
    match rng.integers(4):
        case 0:
            table = table.append_column(one_of(rng, [*table.column_names, ""]), one_of(rng, columns)())
        case 1:
            table = table.slice(0, int(rng.integers(2)))
        case _:
            table = table.set_column(k, one_of(rng, [table.column_names[k], "x", ""]), one_of(rng, columns)())
    out = io.BytesIO()
    with contextlib.suppress(pyarrow.ArrowException):  # a type that the format does not have
        if ending == ".parquet":
            parquet.write_table(table, out, compression=one_of(rng, ["snappy", "none", "zstd"]))
        else:
            feather.write_feather(table, out, compression=one_of(rng, ["lz4", "uncompressed", "zstd"]))
        return out.getvalue()
    return data


STRUCTURE = {
    ".csv": change_text,
    ".tsv": change_text,
    ".mtx": change_text,
    ".gz": change_gzip,
    ".npy": change_npy,
    ".npz": change_archive,
    ".json": change_json,
    ".zarray": change_json,
    ".mat": change_matlab,
}


def change_file(name, data, rng):
    """The content of a file of that name, changed: half of the time its structure."""
    ending = name[name.rindex(".") :] if "." in name else ""
    if rng.random() < 0.5:
        if ending in STRUCTURE:
            return STRUCTURE[ending](data, rng)
        if ending in (".parquet", ".arrow"):
            return change_table(data, rng, ending)
    return change_bytes(data, rng)


# ---------------------------------------------------------------------- arrays and numbers of a call


def change_array(array, rng):
    """Another type, layout, size, order or value."""
    if array.size > 10**6:  # it was changed before
        return array
    match rng.integers(12):
        case 0:
            return array.astype(one_of(rng, ["f8", "f4", "i8", "i4", "u4", ">f8", "c16", "?", "O", "f2"]))
        case 1:
            return np.repeat(array, 2, axis=-1)[..., ::2]  # not contiguous
        case 2:
            return np.asfortranarray(array) if array.ndim > 1 else array[::-1]
        case 3:
            return array[:-1] if array.shape[0] else array
        case 4:
            return np.concatenate([array, array[-1:]])
        case 5:
            return one_of(rng, [array[None], array.ravel(), array[..., None], array[:0], np.empty((0, 2**33))])
        case 6:
            return np.broadcast_to(array.ravel()[:1], (2**31 + 1,))
        case 7:
            return one_of(rng, [None, "x", 3, array.tolist(), np.ma.masked_array(array), np.float64(1)])
        case 8:
            return rng.permutation(array)
        case 9 if array.size > 1:
            changed = array.copy()
            changed.flat[1] = changed.flat[0]
            return changed
    changed = array.copy()
    values = [np.nan, np.inf, -np.inf, 5e-324, -1e308, 0.0]
    if array.dtype.kind in "iu":
        values = [k for k in SIZES if np.iinfo(array.dtype).min <= k <= np.iinfo(array.dtype).max]
    if changed.size and array.dtype.kind in "iuf":
        for _ in range(rng.integers(1, 4)):
            changed.flat[int(rng.integers(changed.size))] = one_of(rng, values)
    return changed


def change_argument(value, rng):
    """Anything that a function is called with."""
    if isinstance(value, np.ndarray):
        return change_array(value, rng)
    if isinstance(value, str):
        return one_of(rng, ["", "v9", "baseline", None, 3])
    if isinstance(value, bool | int):
        return one_of(rng, [*(k for k in SIZES if k < 2**16 or k > 2**31), None, 1.5])  # no loop over 2**31
    return one_of(rng, [np.nan, np.inf, -np.inf, 0.0, -1.0, 5e-324, 1e308, None, "x", 2])
