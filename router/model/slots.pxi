# Records with slots, read and written where they lie: what the compiled shortcuts have in common.
#
# A slot's place is asked of the class when a kernel is imported, and each object's type is compared
# before its slots are touched. A slot that was never set is NULL and counts as None.

cdef extern from *:
    """
    #include "structmember.h"

    static Py_ssize_t place_of(PyObject *descriptor) {
        PyMemberDef *member;
        if (!PyObject_TypeCheck(descriptor, &PyMemberDescr_Type)) return -1;
        member = ((PyMemberDescrObject *)descriptor)->d_member;
        return member->type == T_OBJECT_EX ? member->offset : -1;
    }
    static inline PyObject *get_slot(PyObject *record, Py_ssize_t place) {
        PyObject *value = *(PyObject **)((char *)record + place);
        return value ? value : Py_None;
    }
    static inline void set_slot(PyObject *record, Py_ssize_t place, PyObject *value) {
        PyObject **slot = (PyObject **)((char *)record + place), *before = *slot;
        Py_INCREF(value);
        *slot = value;
        Py_XDECREF(before);
    }
    static inline PyObject *new_record(PyObject *specimen) {
        return PyType_GenericAlloc(Py_TYPE(specimen), 0);
    }
    static inline int is_record(PyObject *record, PyObject *type) {
        return Py_TYPE(record) == (PyTypeObject *)type;
    }
    static inline int is_true(PyObject *value) { return value == Py_True; }
    static inline int is_false(PyObject *value) { return value == Py_False; }
    static inline int is_bool(PyObject *value) { return PyBool_Check(value); }
    static inline int is_none(PyObject *value) { return value == Py_None; }
    static inline int is_bytes(PyObject *value) { return PyBytes_CheckExact(value); }
    static inline int is_zero(PyObject *value) {
        int overflow;
        return PyLong_CheckExact(value) && PyLong_AsLongAndOverflow(value, &overflow) == 0 && !overflow;
    }
    static inline int is_empty_tuple(PyObject *value) {
        return PyTuple_CheckExact(value) && Py_SIZE(value) == 0;
    }
    static inline PyObject *item_of(PyObject *list, Py_ssize_t at) {
        return PyList_GET_ITEM(list, at);
    }
    static inline PyObject *found_in(PyObject *dict, PyObject *key) {
        PyObject *value = PyDict_GetItemWithError(dict, key);
        if (value == NULL) PyErr_Clear();  /* numbers and octets can be hashed and compared */
        return value;
    }
    static inline int took_from(PyObject *dict, PyObject *key) {
        if (PyDict_DelItem(dict, key) == 0) return 1;
        PyErr_Clear();
        return 0;
    }
    static inline PyObject *text_at(const char *octets, Py_ssize_t count) {
        return PyBytes_FromStringAndSize(octets, count);
    }
    """
    ctypedef struct PyObject
    Py_ssize_t place_of(PyObject *descriptor)
    PyObject *get_slot(PyObject *record, Py_ssize_t place)
    void set_slot(PyObject *record, Py_ssize_t place, PyObject *value)
    object new_record(PyObject *specimen)
    bint is_record(PyObject *record, PyObject *type)
    bint is_true(PyObject *value)
    bint is_false(PyObject *value)
    bint is_bool(PyObject *value)
    bint is_none(PyObject *value)
    bint is_bytes(PyObject *value)
    bint is_zero(PyObject *value)
    bint is_empty_tuple(PyObject *value)
    PyObject *item_of(PyObject *list, Py_ssize_t at)
    PyObject *found_in(PyObject *dict, PyObject *key)
    bint took_from(PyObject *dict, PyObject *key)
    bytes text_at(const char *octets, Py_ssize_t count)

cdef enum:
    MOST_SLOTS = 48


cdef Py_ssize_t place(type kind, str name) except -1:
    """Tells where a slot lies in the objects of a class."""
    descriptor = kind.__dict__.get(name)
    cdef Py_ssize_t found = place_of(<PyObject *>descriptor)
    if found < 0:
        raise ImportError(f"{kind.__name__}.{name} is no slot")
    return found


cdef class Maker:
    """Makes records like a specimen, without a call of Python's."""

    cdef object specimen
    cdef Py_ssize_t places[MOST_SLOTS]
    cdef int count

    def __cinit__(self, specimen):
        kind = type(specimen)
        names = [name for name in kind.__slots__ if name != "__weakref__"]
        if len(kind.__mro__) != 2 or len(names) > MOST_SLOTS:
            raise ImportError(f"{kind.__name__} is no plain record")
        self.specimen = specimen
        self.count = len(names)
        for at, name in enumerate(names):
            self.places[at] = place(kind, name)

    cdef object make(self):
        cdef PyObject *specimen = <PyObject *>self.specimen
        made = new_record(specimen)
        cdef int at
        for at in range(self.count):
            set_slot(<PyObject *>made, self.places[at], get_slot(specimen, self.places[at]))
        return made
