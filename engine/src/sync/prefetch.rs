//! A hint to the processor. It shares nothing, and is here because all `unsafe` is.

/// Asks for the cache lines of `value` to be brought near, because they will be needed; changes nothing, and does nothing
/// on processors other than x86-64.
#[inline]
pub(crate) fn prefetch<T>(value: &T) {
    prefetch_from(value);
}

/// The same of one of many values; where there is none, of what lies there.
#[inline(always)]
pub(crate) fn prefetch_of<T>(values: &[T], index: usize) {
    prefetch_from(values.as_ptr().wrapping_add(index));
}

#[inline(always)]
fn prefetch_from<T>(value: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        const LINE: usize = 64;
        let start = value.cast::<i8>();
        // SAFETY: a prefetch reads and writes nothing, wherever it points.
        let line_at = |offset| unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(offset)) };
        // As many lines as it may lie in, by its alignment.
        let before = LINE - align_of::<T>().min(LINE);
        for offset in (0..size_of::<T>() + before).step_by(LINE) {
            line_at(offset.min(size_of::<T>().saturating_sub(1)));
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = value;
}
