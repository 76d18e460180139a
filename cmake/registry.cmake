# kvopt_registry(<target> <folder> <RegistryType> <header>)
#
# Every <folder>/<stem>.cc defines `void kvopt::register_<stem>(RegistryType&)`. This function lists
# the folder, adds the files to <target> and generates `void kvopt::registerAll(RegistryType&)`,
# which calls them in name order. There are no static initialisers and no list to edit: a file that
# forgets its function is a link error that names it.
function(kvopt_registry target folder registry header)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cc)
  list(SORT sources)
  set(declarations "")
  set(calls "")
  foreach(source IN LISTS sources)
    get_filename_component(stem ${source} NAME_WE)
    string(APPEND declarations "void register_${stem}(${registry}& registry);\n")
    string(APPEND calls "  register_${stem}(registry);\n")
  endforeach()
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR}
             OUTPUT_VARIABLE layer)
  set(generated ${PROJECT_BINARY_DIR}/generated/${layer}/${folder}/registry.cc)
  file(CONFIGURE OUTPUT ${generated} @ONLY CONTENT
"// Generated from the files of ${layer}/${folder}; do not edit.
#include \"${header}\"

namespace kvopt {
${declarations}
void registerAll(${registry}& registry) {
  (void)registry;
${calls}}
} // namespace kvopt
")
  target_sources(${target} PRIVATE ${sources} ${generated})
endfunction()
