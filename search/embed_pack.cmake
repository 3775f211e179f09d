# Writes OUT, a C++ file with the bytes of the files in PACK (a list, in order) as lathe::search::kStarterPack.
set(hex "")
foreach(file ${PACK})
  file(READ ${file} bytes HEX)
  string(APPEND hex ${bytes})
endforeach()
string(LENGTH "${hex}" digits)
math(EXPR count "${digits} / 2")
string(REGEX REPLACE "(................................................................)" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
file(WRITE ${OUT}.new "// Made from search/pack by search/embed_pack.cmake.
namespace lathe::search {
extern const char kStarterPack[];
extern const unsigned long kStarterPackBytes;
const char kStarterPack[] = {
${hex} 0};
const unsigned long kStarterPackBytes = ${count};
}  // namespace lathe::search
")
file(RENAME ${OUT}.new ${OUT})
