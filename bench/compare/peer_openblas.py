"""OpenBLAS of the wheel scipy-openblas32, through C: f32 products of two matrices."""
import ctypes as c
import os

import numpy as np

from operands import Unsupported, operand, output_shape

ROW_MAJOR, PLAIN, TRANSPOSED = 101, 111, 112


class Peer:
    through_c = True

    def __init__(self, settings):
        # A CPU that it does not know gets AVX2 kernels, at half the speed.
        if "avx512" in settings["isa"]:
            os.environ.setdefault("OPENBLAS_CORETYPE", "SkylakeX")
        import scipy_openblas32
        folder = scipy_openblas32.get_lib_dir()
        self.library = c.CDLL(os.path.join(folder, "libscipy_openblas.so"))
        self.library.scipy_openblas_set_num_threads(settings["threads"])
        self.library.scipy_openblas_get_config.restype = c.c_char_p
        self.version = self.library.scipy_openblas_get_config().decode().split()[1]
        self.forget()

    def forget(self):
        self.kept = self.out = None

    def prepare(self, row, copies):
        node = row.nodes[0]
        if len(row.nodes) != 1 or node["op"] != "matmul" or any(row.tensors[n]["dtype"] != "f32" or len(row.shape(n)) != 2 for n in node["in"]):
            raise Unsupported("f32 products of two matrices only")
        everything = row.all_rotate()
        arrays = []
        for name in node["in"]:
            first = operand(row, name)
            rotates = everything or row.constant(name)
            arrays.append([first] + [first.copy() for _ in range(copies - 1 if rotates else 0)])
        arrays.append([np.zeros(output_shape(row), np.float32) for _ in range(copies if everything else 1)])
        ta, tb = (node.get("attrs", {}).get(f"transpose_{side}", False) for side in "ab")
        m, n = output_shape(row)
        k = row.shape(node["in"][0])[0 if ta else 1]
        lda, ldb = row.shape(node["in"][0])[1], row.shape(node["in"][1])[1]
        one, zero = c.c_float(1), c.c_float(0)
        at = [[c.c_void_p(kind[i % len(kind)].ctypes.data) for kind in arrays] for i in range(copies)]
        gemm, gemv = self.library.scipy_cblas_sgemm, self.library.scipy_cblas_sgemv

        def product(copy):
            a, b, y = at[copy]
            gemm(ROW_MAJOR, TRANSPOSED if ta else PLAIN, TRANSPOSED if tb else PLAIN, m, n, k, one, a, lda, b, ldb, zero, y, n)

        def vector(copy):
            a, b, y = at[copy]
            gemv(ROW_MAJOR, PLAIN if tb else TRANSPOSED, n if tb else k, k if tb else n, one, b, ldb, a, 1, zero, y, 1)

        self.kept, self.out = (arrays, at), arrays[-1][0]
        return {"gemm": product, "gemv": vector} if m == 1 else {"gemm": product}

    def result(self, way):
        return self.out
